-- Reference: takes a lock, the way the newest protocol document does it. For tests and as the benchmark's baseline;
-- the library's own scripts are in lua/.
--
-- KEYS  1 lock key, 2 index key of the new lock id, 3 fence key
-- ARGV  1 lock id, 2 time to live in ms, 3 tolerance in ms, 4 what the index stores (the lock key), 5 user key
--
-- Returns {1, fence, expiresAtMs}, the fence as 15 digits, or
--         0 where a live lock is in the way.

local lock_key, index_key, fence_key = KEYS[1], KEYS[2], KEYS[3]
local ttl_ms, tolerance_ms = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

local stored = redis.call('GET', lock_key)
if stored then
  local holder = cjson.decode(stored)
  if holder.expiresAtMs > now_ms - tolerance_ms then return 0 end
  -- This is the new lock's index key; the document deletes this one, and leaves the old lock's to its TTL.
  if holder.lockId then redis.call('DEL', index_key) end
end

local token = string.format('%015d', redis.call('INCR', fence_key))
local expires_at_ms = now_ms + ttl_ms
local record = {
  lockId = ARGV[1],
  expiresAtMs = expires_at_ms,
  acquiredAtMs = now_ms,
  key = ARGV[5],
  fence = token,
}
redis.call('SET', lock_key, cjson.encode(record), 'PX', ttl_ms)
redis.call('SET', index_key, ARGV[4], 'PX', ttl_ms)
return { 1, token, expires_at_ms }
