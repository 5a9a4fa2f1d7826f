-- Reference: looks a lock up by its key in one script. The newest protocol document needs only a GET here and leaves
-- judging the time to the client; this is what asking for both at once costs, for the benchmark. Read-only.
--
-- KEYS  1 lock key
-- ARGV  1 tolerance in ms
--
-- Returns the record as it is stored, or nil where the lock is absent or expired.

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

local stored = redis.call('GET', KEYS[1])
if not stored then return nil end
if cjson.decode(stored).expiresAtMs <= now_ms - tonumber(ARGV[1]) then return nil end
return stored
