-- Reference: gives a lock back, the way the newest protocol document does it.
--
-- KEYS  1 index key of the lock id
-- ARGV  1 lock id, 2 tolerance in ms
--
-- Returns  1 released
--          0 held under another id
--         -1 absent
--         -2 seen expired; its keys are deleted

local index_key = KEYS[1]
local tolerance_ms = tonumber(ARGV[2])

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

redis.call('DEL', lock_key, index_key)
return 1
