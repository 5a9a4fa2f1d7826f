-- Reference: replaces a lock's time to live, the way the newest protocol document does it.
--
-- KEYS  1 index key of the lock id
-- ARGV  1 lock id, 2 tolerance in ms, 3 new time to live in ms
--
-- Returns {1, expiresAtMs}, or
--          0 held under another id
--         -1 absent
--         -2 seen expired; its keys are deleted

local index_key = KEYS[1]
local tolerance_ms, ttl_ms = tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

local lock_key = redis.call('GET', index_key)
if not lock_key then return -1 end
local stored = redis.call('GET', lock_key)
if not stored then return -1 end

local holder = cjson.decode(stored)
if holder.expiresAtMs <= now_ms - tolerance_ms then
  redis.call('DEL', lock_key, index_key)
  return -2
end
if holder.lockId ~= ARGV[1] then return 0 end

holder.expiresAtMs = now_ms + ttl_ms
redis.call('SET', lock_key, cjson.encode(holder), 'PX', ttl_ms)
redis.call('SET', index_key, lock_key, 'PX', ttl_ms)
return { 1, holder.expiresAtMs }
