-- Runs a batch of operations on locks, in order, each on its own: one that fails leaves the others alone.
--
-- KEYS     the keys of each operation, one operation after the other
-- ARGV[1]  what stands in front of every key: the prefix and a colon, or nothing
-- ARGV[2]  how many operations; a `w` behind the number: watched, see below
-- ARGV[3…] the operations: a letter, then its arguments
--
--   operation   KEYS                ARGV
--   acquire     lock                a, lock id, ttl in ms
--               lock, index, fence  A, lock id, ttl in ms, user key (escaped for JSON)
--   release     index               r
--               index               R, lock id
--   extend      index               x, ttl in ms
--               index               X, ttl in ms, lock id
--   clean up    lock                c    deletes a record that expired more than two seconds ago
--   inspect     lock                i    tells whether the lock is held, readable or not
--   self-test   lock, index, fence  t    tells whether the user has the rights that locks need
--
-- The small letters are for keys that are neither hashed nor in need of escapes: what is left out follows from the key.
--
-- Returns one text with a line for the server's time in ms, then one for each operation (without the blanks):
--
--   A fence(15 digits) expiry  acquired, now or earlier by the same lock id
--   L expiry                   locked by somebody else until then
--   l fence(15 digits) expiry  the same in a watched batch, with the holder's fence; zeros where it has none
--   C                          locked: unreadable, but it has a time to live
--   R                          released
--   X expiry                   extended until then
--   O                          belongs to another lock id
--   N                          not there
--   E                          was there, had expired, is deleted now
--   H, F, T                    held; free; all rights are there
--   !text                      failed: an error of Redis, CORRUPT… or FENCE…
--
-- A watched batch comes from a client that wants to be told when its locks change (CLIENT TRACKING). Redis remembers
-- who has read a key, and forgets that with each write, ours included: so the locks that the batch has written are read
-- once more in the end. Before 7.2 it is not the keys that a script reads that are remembered, but all of KEYS; hence
-- further lock keys may follow there, those of the operations that begin with an index key.
--
-- Where the time goes, and what is done about it: calls into Redis cost most, so what the batch will look at is read by
-- two MGETs, and what is to be deleted is deleted by one DEL in the end; `changed` shows later operations what earlier
-- ones did. Then patterns and new strings: a record that this library wrote has its fields at fixed places. Other
-- records are matched by pattern, which is sound because inside a JSON string every quote is escaped; only one with
-- nested values or blanks is decoded.
--
-- Out of memory: Redis refuses a script's first write if that one needs memory. An acquire begins with INCR and is
-- refused; an extend begins with PEXPIRE and goes through.

local tolerance_ms = 1000
local cleanup_ms = 2000
local fence_max = 900000000000000

local call, sub, find, byte, match, format = redis.pcall, string.sub, string.find, string.byte, string.match, string.format
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = format('%d', now)
local live_after = format('%d', now - tolerance_ms) -- 13 digits until the year 2286
local prefix = ARGV[1]
local index_prefix, fence_prefix = prefix .. 'id:', prefix .. 'fence:'
local after_expiry = ',"acquiredAtMs":' .. now_text .. ',"key":"'
local wrong_type = '!WRONGTYPE Operation against a key holding the wrong kind of value'

local changed = {} -- key: what it holds now; false: nothing
local doomed, doomed_count = {}, 0 -- keys to delete in the end, unless `changed` says otherwise by then
local expiries = {} -- ttl: when that ends, as text

local function expiry_in(ttl)
  local text = expiries[ttl]
  if not text then
    text = format('%d', now + tonumber(ttl))
    expiries[ttl] = text
  end
  return text
end

-- What is there; where that is no text, nothing and the error. MGET shows nothing for a key of another type, and so
-- says no more than that a closer look is needed.
local function read(key)
  local value = call('GET', key)
  if type(value) == 'table' then return false, '!' .. value.err end
  return value
end

local function delete(key)
  changed[key] = false
  doomed_count = doomed_count + 1
  doomed[doomed_count] = key
end

-- The expiry, a text of 13 digits, of a record in the form that this library writes; nothing for others:
--
-- {"lockId":"                      22 characters                      ","expiresAtMs":13 digits,…
-- 1          12                                                       34              50       63
--
-- That these are digits must be known, or a line break among them would shift every answer behind it; a pattern would
-- cost as much as all the rest. A number that begins above 1, ends with a digit and has a value of 13 places is one.
local function own_expiry(record)
  if find(record, '{"lockId":"', 1, true) ~= 1 or find(record, '","expiresAtMs":', 34, true) ~= 34 then return end
  local last, comma = byte(record, 62, 63)
  if comma ~= 44 or last < 48 or last > 57 or byte(record, 33) == 92 then return end
  local text = sub(record, 50, 62)
  if text >= '1' and (tonumber(text) or 0) >= 1000000000000 then return text end
end

-- Owner and expiry (a number) of a record in any form; its fields, where it had to be decoded. No expiry: unreadable.
local function facts(record)
  if not find(record, '[{%[]', 2) then
    local owner, expiry = match(record, '"lockId":"([%w_-]+)"'), match(record, '"expiresAtMs":(%d+)[,}]')
    if owner and expiry then return owner, tonumber(expiry) end
  end
  local readable, fields = pcall(cjson.decode, record)
  if not readable or type(fields) ~= 'table' then return nil end
  local expiry = fields.expiresAtMs or fields.expiresAt
  return fields.lockId, type(expiry) == 'number' and expiry or nil, fields
end

local function is_live(expiry) return expiry > now - tolerance_ms end

local function delete_index_of(owner)
  if type(owner) == 'string' and #owner == 22 and match(owner, '^[%w_-]+$') then delete(index_prefix .. owner) end
end

local function unreadable(lock_key)
  local left = call('PTTL', lock_key)
  if type(left) == 'table' then return '!' .. left.err end
  if left == -1 then return '!CORRUPT the record cannot be read, and has no time to live' end
  return 'C'
end

-- The answer where a record keeps the lock from being acquired; nothing where it has expired.
local function held_by(record, lock_key, id)
  local owner, expiry, fields
  local text = own_expiry(record)
  if text then
    if text > live_after and find(record, id, 12, true) ~= 12 then return 'L' .. text end
    owner, expiry = sub(record, 12, 33), tonumber(text)
  else
    owner, expiry, fields = facts(record)
  end
  if not expiry then return unreadable(lock_key) end
  if is_live(expiry) then
    if owner ~= id then return format('L%d', expiry) end
    return format('A%s%d', match(record, '"fence":"(%d+)"') or fields and fields.fence or '', expiry)
  end
  delete_index_of(owner)
end

local function next_fence(fence_key, last)
  last = changed[fence_key] or last or read(fence_key) or 0
  if (tonumber(last) or 0) >= fence_max then return nil, '!FENCE the counter is exhausted' end
  local fence = call('INCR', fence_key)
  if type(fence) == 'table' then return nil, '!' .. fence.err end
  changed[fence_key] = fence
  return format('%015d', fence)
end

-- Takes a lock that is free; `record` is what expired there.
local function take(record, lock_key, index_key, fence_key, last_fence, id, ttl, key)
  local was_deleted = changed[lock_key] == false
  local fence, failure = next_fence(fence_key, last_fence)
  if not fence then return failure end
  local expiry = expiry_in(ttl)
  local fresh = '{"lockId":"' .. id .. '","expiresAtMs":' .. expiry .. after_expiry .. key .. '","fence":"' .. fence .. '"}'
  local stored
  if record or was_deleted then
    stored = call('SET', lock_key, fresh, 'PX', ttl)
  else
    -- MGET shows nothing for a key of another type, either: that one must not be overwritten.
    stored = call('SET', lock_key, fresh, 'PX', ttl, 'NX')
    if not stored then return wrong_type end
  end
  if stored.err then return '!' .. stored.err end
  changed[lock_key] = fresh
  local indexed = call('SET', index_key, lock_key, 'PX', ttl)
  if indexed.err then
    delete(lock_key)
    return '!' .. indexed.err
  end
  changed[index_key] = lock_key
  return 'A' .. fence .. expiry
end

local function release(record, lock_key, index_key, id)
  local live
  local text = own_expiry(record)
  if text then
    if find(record, id, 12, true) ~= 12 then return 'O' end
    live = text > live_after
  else
    local owner, expiry = facts(record)
    if owner ~= id then return 'O' end
    live = not expiry or is_live(expiry)
  end
  delete(lock_key)
  delete(index_key)
  return live and 'R' or 'E'
end

local function extend(record, lock_key, index_key, id, ttl)
  local live, fields
  local text = own_expiry(record)
  if text then
    if find(record, id, 12, true) ~= 12 then return 'O' end
    live = text > live_after
  else
    local owner, expiry
    owner, expiry, fields = facts(record)
    if owner ~= id then return 'O' end
    if not expiry then return '!CORRUPT the record cannot be read' end
    live = is_live(expiry)
  end
  if not live then
    delete(lock_key)
    delete(index_key)
    return 'E'
  end

  local extended = expiry_in(ttl)
  local fresh
  if text then
    fresh = sub(record, 1, 49) .. extended .. sub(record, 63)
  elseif fields then
    fields[fields.expiresAtMs and 'expiresAtMs' or 'expiresAt'] = tonumber(extended)
    fresh = cjson.encode(fields)
  else
    fresh = string.gsub(record, '"expiresAtMs":%d+', '"expiresAtMs":' .. extended, 1)
  end
  local kept = call('PEXPIRE', index_key, ttl)
  if type(kept) == 'table' then return '!' .. kept.err end
  local stored = call('SET', lock_key, fresh, 'PX', ttl)
  if stored.err then return '!' .. stored.err end
  changed[lock_key] = fresh
  return 'X' .. extended
end

local function clean_up(record, lock_key)
  local owner, expiry = facts(record)
  if not expiry or expiry >= now - cleanup_ms then return 'H' end
  delete(lock_key)
  delete_index_of(owner)
  return 'E'
end

local function inspect(record, lock_key)
  local _, expiry = facts(record)
  if not expiry then return unreadable(lock_key) end
  return is_live(expiry) and 'H' or 'F'
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

-- First the one key that each operation begins with is read.
local key_count = { A = 3, t = 3 }
local argument_count = { a = 3, A = 4, r = 1, R = 2, x = 2, X = 3, c = 1, i = 1, t = 1 }
local count = tonumber(ARGV[2])
local judge = held_by
local watched = not count
if watched then
  count = tonumber(sub(ARGV[2], 1, -2))

  -- Our own records end with the fence: the last 26 characters have room for just 15 digits.
  local function fence_of(record)
    local fence = match(record, '^"fence":"(%d+)"}$', -26)
    if fence then return fence end
    local readable, fields = pcall(cjson.decode, record)
    fence = readable and type(fields) == 'table' and fields.fence
    return type(fence) == 'string' and #fence == 15 and find(fence, '^%d+$') and fence or '000000000000000'
  end

  judge = function(record, lock_key, id)
    local status = held_by(record, lock_key, id)
    if status and byte(status) == 76 then return 'l' .. fence_of(record) .. sub(status, 2) end
    return status
  end
end
local first_keys = KEYS
if #KEYS ~= count then
  first_keys = {}
  local key_at, at = 1, 3
  for i = 1, count do
    first_keys[i] = KEYS[key_at]
    key_at = key_at + (key_count[ARGV[at]] or 1)
    at = at + argument_count[ARGV[at]]
  end
end
if count == 0 then return now_text end
local first = redis.call('MGET', unpack(first_keys))

-- Then what follows from that: the lock of an index key, the fence counter of a free lock.
local second_keys, second_of, second_count = {}, {}, 0
local key_at, at = 1, 3
for i = 1, count do
  local letter, value, key = ARGV[at], first[i], nil
  if letter == 'a' then
    key = not value and fence_prefix .. first_keys[i]
  elseif letter == 'A' then
    key = not value and KEYS[key_at + 2]
  elseif letter == 'x' or letter == 'r' or letter == 'X' or letter == 'R' then
    key = value
  end
  if key then
    second_count = second_count + 1
    second_keys[second_count], second_of[i] = key, second_count
  end
  key_at = key_at + (key_count[letter] or 1)
  at = at + argument_count[letter]
end
local second = second_count > 0 and redis.call('MGET', unpack(second_keys))

local answer = { now_text }
local deletes, deletes_count = {}, 0 -- answers that hold only if the DEL in the end succeeds
key_at, at = 1, 3
for i = 1, count do
  local letter, key = ARGV[at], first_keys[i]
  local value = changed[key]
  if value == nil then value = first[i] end
  local follows, status = second_of[i], nil

  if letter == 'a' or letter == 'A' then
    local id = ARGV[at + 1]
    if value then status = judge(value, key, id) end
    if not status then
      local last_fence = follows and second[follows]
      if letter == 'a' then
        status = take(value, key, index_prefix .. id, fence_prefix .. key, last_fence, id, ARGV[at + 2],
          sub(key, #prefix + 1))
      else
        status = take(value, key, KEYS[key_at + 1], KEYS[key_at + 2], last_fence, id, ARGV[at + 2], ARGV[at + 3])
      end
    end
  elseif letter == 't' then
    status = self_test(key, KEYS[key_at + 1], KEYS[key_at + 2])
  elseif letter == 'c' then
    status = value and clean_up(value, key) or 'N'
  elseif letter == 'i' then
    status = value and inspect(value, key) or 'F'
  else
    local record, failure
    if not value and changed[key] == nil then value, failure = read(key) end
    if value then
      record = changed[value]
      if record == nil and follows and second_keys[follows] == value then record = second[follows] end
      if not record and changed[value] == nil then record, failure = read(value) end
    end
    local doomed_before = doomed_count
    if not record then
      status = failure or 'N'
    elseif letter == 'x' then
      status = extend(record, value, key, sub(key, #index_prefix + 1), ARGV[at + 1])
    elseif letter == 'r' then
      status = release(record, value, key, sub(key, #index_prefix + 1))
    elseif letter == 'X' then
      status = extend(record, value, key, ARGV[at + 2], ARGV[at + 1])
    else
      status = release(record, value, key, ARGV[at + 1])
    end
    if doomed_count > doomed_before then
      deletes_count = deletes_count + 1
      deletes[deletes_count] = i + 1
    end
  end

  answer[i + 1] = status
  key_at = key_at + (key_count[letter] or 1)
  at = at + argument_count[letter]
end

local gone, gone_count = {}, 0
for i = 1, doomed_count do
  if changed[doomed[i]] == false then
    gone_count = gone_count + 1
    gone[gone_count] = doomed[i]
  end
end
if gone_count > 0 then
  local removed = call('DEL', unpack(gone))
  if type(removed) == 'table' then
    for i = 1, deletes_count do answer[deletes[i]] = '!' .. removed.err end
  end
end

if watched then
  local written, written_count = {}, 0
  for i = 1, count do
    local kind, key = byte(answer[i + 1]), first_keys[i]
    if kind == 88 then key = changed[key] or first[i] end -- X: the lock of the index key
    if (kind == 65 or kind == 88) and changed[key] then
      written_count = written_count + 1
      written[written_count] = key
    end
  end
  if written_count > 0 then call('MGET', unpack(written)) end
end
return table.concat(answer, '\n')
