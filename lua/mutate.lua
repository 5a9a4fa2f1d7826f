-- Runs a batch of operations on locks, in order, each on its own: one that fails leaves the others alone.
--
-- KEYS     the keys of each operation, one operation after the other
-- ARGV[1]  what stands in front of a lock id in an index key; empty where index keys are hashed
-- ARGV[2…] the operations: a letter, then its arguments
--
--   operation    KEYS                ARGV
--   acquire      lock, index, fence  a, lock id, ttl in ms, user key (escaped for JSON)
--   release      index               r, lock id
--   extend       index               x, lock id, ttl in ms
--   clean up     lock                c       deletes a record that expired more than two seconds ago
--   inspect      lock                i       tells whether the lock is held, readable or not
--   self-test    lock, index, fence  t       tells whether the user has the rights that locks need
--
-- Returns one text with a line for the server's time in ms, then one for each operation:
--
--   A fence(15 digits) expiry  acquired, now or earlier by the same lock id
--   L expiry                   locked by somebody else until then
--   C                          locked: unreadable, but it has a time to live
--   R                          released
--   X expiry                   extended until then
--   O                          belongs to another lock id
--   N                          not there
--   E                          was there, had expired, is deleted now
--   H, F, T                    held; free; all rights are there
--   !text                      failed: an error of Redis, CORRUPT… or FENCE…
--
-- (without the blanks). Calls into Redis cost most, so what the batch will look at is read by two MGETs up front and
-- kept in `value`, where later operations see what earlier ones changed; what is to be deleted is deleted by one DEL in
-- the end. Records are matched by patterns: inside a JSON string every quote is escaped, so nothing in a key can be taken
-- for a field. Only a record with nested values, or written with blanks, is decoded.
--
-- Out of memory: Redis refuses a script's first write if that one needs memory. An acquire begins with INCR and is
-- refused; an extend begins with PEXPIRE and goes through.

local tolerance_ms = 1000
local cleanup_ms = 2000
local fence_max = 900000000000000
local head = '^{"lockId":"([%w_-]+)","expiresAtMs":(%d+)[,}]'
local key_count = { a = 3, r = 1, x = 1, c = 1, i = 1, t = 3 }
local argument_count = { a = 4, r = 2, x = 3, c = 1, i = 1, t = 1 }

local pcall_redis, match, format = redis.pcall, string.match, string.format
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = format('%d', now)
local index_prefix = ARGV[1]

local value = {}    -- key: what it holds; false: nothing
local doomed = {}   -- keys to delete in the end, where `deleted` still says so
local deleted = {}

local function read_all(keys)
  if #keys == 0 then return end
  local values = redis.call('MGET', unpack(keys))
  for i = 1, #keys do value[keys[i]] = values[i] end
end

local function get(key)
  local known = value[key]
  if known == nil then
    known = pcall_redis('GET', key)
    if type(known) ~= 'string' then known = false end
    value[key] = known
  end
  return known
end

local function delete(key)
  value[key] = false
  deleted[key] = true
  doomed[#doomed + 1] = key
end

local function decode(record)
  local readable, fields = pcall(cjson.decode, record)
  return readable and type(fields) == 'table' and fields or nil
end

-- Owner and expiry; for a record that had to be decoded, its fields, too. No expiry: unreadable.
local function facts(record)
  local owner, expires = match(record, head)
  if not owner and not string.find(record, '[{%[]', 2) then
    owner = match(record, '"lockId":"([%w_-]+)"')
    expires = match(record, '"expiresAtMs":(%d+)[,}]')
  end
  if owner and expires then return owner, tonumber(expires) end
  local fields = decode(record)
  if not fields then return nil end
  local expiry = fields.expiresAtMs or fields.expiresAt
  return fields.lockId, type(expiry) == 'number' and expiry or nil, fields
end

local function is_live(expires) return expires > now - tolerance_ms end

local function delete_index_of(owner)
  if index_prefix ~= '' and type(owner) == 'string' and match(owner, '^[%w_-]+$') and #owner == 22 then
    delete(index_prefix .. owner)
  end
end

local function unreadable(lock_key)
  local left = pcall_redis('PTTL', lock_key)
  if type(left) == 'table' then return '!' .. left.err end
  if left == -1 then return '!CORRUPT the record cannot be read, and has no time to live' end
  return 'C'
end

local function next_fence(fence_key)
  local last = tonumber(get(fence_key) or 0)
  if last and last >= fence_max then return nil, '!FENCE the counter is exhausted' end
  local fence = pcall_redis('INCR', fence_key)
  if type(fence) == 'table' then return nil, '!' .. fence.err end
  value[fence_key] = fence
  return format('%015d', fence)
end

local function acquire(lock_key, index_key, fence_key, id, ttl, key)
  local record = get(lock_key)
  if record then
    local owner, expires, fields = facts(record)
    if not expires then return unreadable(lock_key) end
    if is_live(expires) then
      if owner ~= id then return format('L%d', expires) end
      return format('A%s%d', match(record, '"fence":"(%d+)"') or fields and fields.fence or '', expires)
    end
    delete_index_of(owner)
  end

  local fence, failure = next_fence(fence_key)
  if not fence then return failure end
  local expires = now + tonumber(ttl)
  local fresh = format('{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%s,"key":"', id, expires, now_text)
    .. key .. '","fence":"' .. fence .. '"}'
  local stored
  if record or deleted[lock_key] then
    stored = pcall_redis('SET', lock_key, fresh, 'PX', ttl)
  else
    -- MGET shows nothing for a key of another type, either: that one must not be overwritten.
    stored = pcall_redis('SET', lock_key, fresh, 'PX', ttl, 'NX')
    if not stored then return '!WRONGTYPE Operation against a key holding the wrong kind of value' end
  end
  if stored.err then return '!' .. stored.err end
  value[lock_key], deleted[lock_key] = fresh, nil
  local indexed = pcall_redis('SET', index_key, lock_key, 'PX', ttl)
  if indexed.err then
    delete(lock_key)
    return '!' .. indexed.err
  end
  value[index_key], deleted[index_key] = lock_key, nil
  return format('A%s%d', fence, expires)
end

local function release(index_key, id)
  local lock_key = get(index_key)
  local record = lock_key and get(lock_key)
  if not record then return 'N' end
  local owner, expires = facts(record)
  if owner ~= id then return 'O' end
  delete(lock_key)
  delete(index_key)
  return (not expires or is_live(expires)) and 'R' or 'E'
end

local function extend(index_key, id, ttl)
  local lock_key = get(index_key)
  local record = lock_key and get(lock_key)
  if not record then return 'N' end
  local owner, expires, fields = facts(record)
  if owner ~= id then return 'O' end
  if not expires then return '!CORRUPT the record cannot be read' end
  if not is_live(expires) then
    delete(lock_key)
    delete(index_key)
    return 'E'
  end

  local extended = now + tonumber(ttl)
  local fresh
  if fields then
    fields[fields.expiresAtMs and 'expiresAtMs' or 'expiresAt'] = extended
    fresh = cjson.encode(fields)
  else
    fresh = string.gsub(record, '"expiresAtMs":%d+', format('"expiresAtMs":%d', extended), 1)
  end
  local kept = pcall_redis('PEXPIRE', index_key, ttl)
  if type(kept) == 'table' then return '!' .. kept.err end
  local stored = pcall_redis('SET', lock_key, fresh, 'PX', ttl)
  if stored.err then return '!' .. stored.err end
  value[lock_key] = fresh
  return format('X%d', extended)
end

local function clean_up(lock_key)
  local record = get(lock_key)
  if not record then return 'N' end
  local owner, expires = facts(record)
  if not expires or expires >= now - cleanup_ms then return 'H' end
  delete(lock_key)
  delete_index_of(owner)
  return 'E'
end

local function inspect(lock_key)
  local record = get(lock_key)
  if not record then return 'F' end
  local _, expires = facts(record)
  if not expires then return unreadable(lock_key) end
  return is_live(expires) and 'H' or 'F'
end

local function self_test(lock_key, index_key, fence_key)
  if not redis.acl_check_cmd then return 'T' end -- before 7.0 it cannot be asked
  for _, command in ipairs({
    { 'GET', lock_key }, { 'MGET', lock_key, index_key, fence_key }, { 'PTTL', lock_key },
    { 'SET', lock_key, '', 'PX', '1' }, { 'SET', index_key, '', 'PX', '1' }, { 'INCR', fence_key },
    { 'PEXPIRE', index_key, '1' }, { 'DEL', lock_key, index_key },
  }) do
    if not redis.acl_check_cmd(unpack(command)) then
      return '!NOPERM this user may not run ' .. command[1] .. ' on ' .. command[2]
    end
  end
  return 'T'
end

local run = { a = acquire, r = release, x = extend, c = clean_up, i = inspect, t = self_test }

-- What the operations will look at: first the keys they name; then those that index keys lead to, and the fence
-- counters of locks that are free.
local wanted, indexes, acquires = {}, {}, {}
local key_at, argument_at = 1, 2
while argument_at <= #ARGV do
  local letter = ARGV[argument_at]
  local first = KEYS[key_at]
  wanted[#wanted + 1] = first
  if letter == 'a' then
    acquires[#acquires + 1] = key_at
  elseif letter == 'r' or letter == 'x' then
    indexes[#indexes + 1] = first
  end
  key_at = key_at + key_count[letter]
  argument_at = argument_at + argument_count[letter]
end
read_all(wanted)
local led_to = {}
for i = 1, #indexes do
  local lock_key = value[indexes[i]]
  if lock_key and value[lock_key] == nil then led_to[#led_to + 1] = lock_key end
end
for i = 1, #acquires do
  if not value[KEYS[acquires[i]]] then led_to[#led_to + 1] = KEYS[acquires[i] + 2] end
end
read_all(led_to)

local answer = { now_text }
local deletes = {} -- answers that hold only if the DEL in the end succeeds
key_at, argument_at = 1, 2
while argument_at <= #ARGV do
  local letter = ARGV[argument_at]
  local before = #doomed
  local status
  if letter == 'a' then
    status = acquire(KEYS[key_at], KEYS[key_at + 1], KEYS[key_at + 2],
      ARGV[argument_at + 1], ARGV[argument_at + 2], ARGV[argument_at + 3])
  elseif letter == 't' then
    status = self_test(KEYS[key_at], KEYS[key_at + 1], KEYS[key_at + 2])
  else
    status = run[letter](KEYS[key_at], ARGV[argument_at + 1], ARGV[argument_at + 2])
  end
  answer[#answer + 1] = status
  if letter ~= 'a' and #doomed > before then deletes[#deletes + 1] = #answer end
  key_at = key_at + key_count[letter]
  argument_at = argument_at + argument_count[letter]
end

local gone = {}
for i = 1, #doomed do
  if deleted[doomed[i]] then gone[#gone + 1] = doomed[i] end
end
if #gone > 0 then
  local removed = pcall_redis('DEL', unpack(gone))
  if type(removed) == 'table' then
    for i = 1, #deletes do answer[deletes[i]] = '!' .. removed.err end
  end
end
return table.concat(answer, '\n')
