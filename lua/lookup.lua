-- Looks up locks by their ids: atomic, read-only, ownership checked.
--
-- KEYS  one index key for each lock
-- ARGV  the lock ids, in the same order
--
-- Returns an array: first the server's time in milliseconds, as text; then for each lock
--   its record as it is stored, or
--   nil where the lock is absent, expired, or belongs to another id, or
--   an error where one of its keys is not a string. The others are answered all the same.
--
-- The records that this library writes are matched by pattern, anchored at the front, so nothing that stands in a key
-- can be taken for a field. Those of other writers are decoded.

local tolerance_ms = 1000

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function owner_and_expiry(record)
  local owner, expires_at_ms = string.match(record, '^{"lockId":"([%w_-]+)","expiresAtMs":(%d+),')
  if owner then return owner, tonumber(expires_at_ms) end
  local readable, fields = pcall(cjson.decode, record)
  if not readable or type(fields) ~= 'table' then return nil end
  return fields.lockId, fields.expiresAtMs or fields.expiresAt
end

local function lookup(index_key, lock_id)
  local lock_key = redis.pcall('GET', index_key)
  if type(lock_key) ~= 'string' then return lock_key end
  local record = redis.pcall('GET', lock_key)
  if type(record) ~= 'string' then return record end
  local owner, expires_at_ms = owner_and_expiry(record)
  if owner ~= lock_id or type(expires_at_ms) ~= 'number' then return false end
  return expires_at_ms > now_ms - tolerance_ms and record
end

local answer = { string.format('%d', now_ms) }
for i = 1, #KEYS do
  answer[i + 1] = lookup(KEYS[i], ARGV[i])
end
return answer
