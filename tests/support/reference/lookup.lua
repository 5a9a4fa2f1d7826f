-- Reference: looks a lock up by its id, the way the newest protocol document does it. Read-only.
--
-- KEYS  1 index key of the lock id
-- ARGV  1 lock id, 2 tolerance in ms
--
-- Returns the record as it is stored, or nil where the lock is absent, expired, or held under another id.

local tolerance_ms = tonumber(ARGV[2])

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

local lock_key = redis.call('GET', KEYS[1])
if not lock_key then return nil end
local stored = redis.call('GET', lock_key)
if not stored then return nil end

local holder = cjson.decode(stored)
if holder.lockId ~= ARGV[1] then return nil end
if holder.expiresAtMs <= now_ms - tolerance_ms then return nil end
return stored
