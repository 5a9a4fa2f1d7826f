-- Runs a batch of operations on locks, in order, each on its own: one that fails leaves the others alone.
--
-- KEYS     the keys of each operation, one operation after the other
-- ARGV[1]  what stands in front of every key: the prefix and a colon, or nothing
-- ARGV[2]  how many times to live there are; a `w` behind the number: watched, see below
-- ARGV[3]  the operations, a letter each
-- ARGV[4]  the lock ids of those that have one, one after the other
-- ARGV[5]  the time to live of each operation, a character each: `1` is the first there is, then in the order of ASCII
-- ARGV[6…] the times to live, in ms; then the user keys of those that have one, escaped for JSON
--
--   operation   letter  KEYS                has
--   acquire     a       lock                lock id, ttl    the first time that it is sent
--               A       lock, index, fence  lock id, ttl, user key
--   release     r       index
--               R       index               lock id
--   extend      x       index               ttl
--               X       index               lock id, ttl
--   clean up    c       lock                    deletes a record that expired more than two seconds ago
--   inspect     i       lock                    tells whether the lock is held, readable or not
--   self-test   t       lock, index, fence      tells whether the user has the rights that locks need
--
-- The small letters are for keys that are neither hashed nor in need of escapes: what is left out follows from the key.
--
-- Returns one text: the server's time in ms, then the answer to each operation (without the blanks; times have 13
-- digits, fences 15):
--
--   A fence expiry  acquired, now or earlier by the same lock id
--   L expiry        locked by somebody else until then; what is no number there wants a closer look, by an `A`
--   l fence expiry  the same in a watched batch, with the holder's fence; zeros where it has none
--   C               locked: unreadable, but it has a time to live
--   R               released
--   X expiry        extended until then
--   O               belongs to another lock id
--   N               not there
--   E               was there, had expired, is deleted now
--   H, F, T         held; free; all rights are there
--   !text           failed: an error of Redis, CORRUPT… or FENCE…; ends with a line break
--
-- A watched batch comes from a client that wants to be told when its locks change (CLIENT TRACKING). Redis remembers
-- who has read a key, and forgets that with each write, ours included: so the locks that the batch has written are read
-- once more in the end. Before 7.2 it is not the keys that a script reads that are remembered, but all of KEYS; hence
-- further lock keys may follow there, those of the operations that begin with an index key.
--
-- Where the time goes, and what is done about it: calls into Redis cost most, so what the batch will look at is read by
-- two MGETs, and what is to be deleted is deleted by one DEL in the end; `changed` shows later operations what earlier
-- ones did. Then arguments, hence few of them; calls of any kind, above all of patterns and tonumber; and new strings. A
-- record that this library wrote has its fields at fixed places. Other records are matched by pattern, which is sound
-- because inside a JSON string every quote is escaped; only one with nested values or blanks is decoded.
--
-- Out of memory: Redis refuses a script's first write if that one needs memory. An acquire begins with INCR and is
-- refused; an extend begins with PEXPIRE and goes through.

local tolerance_ms = 1000
local cleanup_ms = 2000
local fence_max = 900000000000000

local call, sub, find, byte, match, format = redis.pcall, string.sub, string.find, string.byte, string.match, string.format
local split = struct.unpack
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = format('%d', now)
local live_after = format('%d', now - tolerance_ms) -- 13 digits until the year 2286
local prefix = ARGV[1]
local index_prefix, fence_prefix = prefix .. 'id:', prefix .. 'fence:'
local after_expiry = ',"acquiredAtMs":' .. now_text .. ',"key":"'

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

local function failed(text) return '!' .. text .. '\n' end

-- What is there; where that is no text, nothing and the error. MGET shows nothing for a key of another type, and so
-- says no more than that a closer look is needed.
local function read(key)
  local value = call('GET', key)
  if type(value) == 'table' then return false, failed(value.err) end
  return value
end

local function delete(key)
  changed[key] = false
  doomed_count = doomed_count + 1
  doomed[doomed_count] = key
end

-- Owner and expiry of a record in the form that this library writes, texts of 22 and 13 characters; nothing for others:
--
-- {"lockId":"                      22 characters                      ","expiresAtMs":13 digits,…
-- 1          12                                                       34              50       63
--
-- Whether the expiry is a number is not looked at: that would cost as much as all the rest.
local function own_facts(record)
  if #record < 63 then return end
  local head, owner, middle, expiry, comma = split('c11c22c16c13c1', record)
  if head == '{"lockId":"' and middle == '","expiresAtMs":' and comma == ',' then return owner, expiry end
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
  if type(left) == 'table' then return failed(left.err) end
  if left == -1 then return failed('CORRUPT the record cannot be read, and has no time to live') end
  return 'C'
end

-- Our own records end with the fence: the last 26 characters have room for just 15 digits.
local function fence_of(record)
  local fence = match(record, '^"fence":"(%d+)"}$', -26)
  if fence then return fence end
  local readable, fields = pcall(cjson.decode, record)
  fence = readable and type(fields) == 'table' and fields.fence
  return type(fence) == 'string' and #fence == 15 and find(fence, '^%d+$') and fence
end

local function padded(expiry) return format('%013d', math.min(expiry, 9999999999999)) end

-- The answer where a record keeps the lock from being acquired; nothing where it has expired.
local function held_by(record, lock_key, id)
  local owner, expiry = facts(record)
  if not expiry then return unreadable(lock_key) end
  if not is_live(expiry) then return delete_index_of(owner) end
  if owner ~= id then return 'L' .. padded(expiry) end
  local fence = fence_of(record)
  if not fence then return failed('CORRUPT the record has no fence') end
  return 'A' .. fence .. padded(expiry)
end

-- The same for a lock id that is sent for the first time, and so cannot be the owner.
local function held_by_other(record, lock_key)
  local _, expiry = own_facts(record)
  if expiry and expiry > live_after then return 'L' .. expiry end
  return held_by(record, lock_key, '')
end

local function next_fence(fence_key, last)
  last = changed[fence_key] or last or read(fence_key) or 0
  if (tonumber(last) or 0) >= fence_max then return nil, failed('FENCE the counter is exhausted') end
  local fence = call('INCR', fence_key)
  if type(fence) == 'table' then return nil, failed(fence.err) end
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
    if not stored then return failed('WRONGTYPE Operation against a key holding the wrong kind of value') end
  end
  if stored.err then return failed(stored.err) end
  changed[lock_key] = fresh
  local indexed = call('SET', index_key, lock_key, 'PX', ttl)
  if indexed.err then
    delete(lock_key)
    return failed(indexed.err)
  end
  changed[index_key] = lock_key
  return 'A' .. fence .. expiry
end

local function release(record, lock_key, index_key, id)
  local live
  local owner, expiry = own_facts(record)
  if owner == id then
    live = expiry > live_after
  else
    owner, expiry = facts(record)
    if owner ~= id then return 'O' end
    live = not expiry or is_live(expiry)
  end
  delete(lock_key)
  delete(index_key)
  return live and 'R' or 'E'
end

local function extend(record, lock_key, index_key, id, ttl)
  local live, fields
  local owner, expiry = own_facts(record)
  local is_ours = owner == id
  if is_ours then
    live = expiry > live_after
  else
    owner, expiry, fields = facts(record)
    if owner ~= id then return 'O' end
    if not expiry then return failed('CORRUPT the record cannot be read') end
    live = is_live(expiry)
  end
  if not live then
    delete(lock_key)
    delete(index_key)
    return 'E'
  end

  local extended = expiry_in(ttl)
  local fresh
  if is_ours then
    fresh = sub(record, 1, 49) .. extended .. sub(record, 63)
  elseif fields then
    fields[fields.expiresAtMs and 'expiresAtMs' or 'expiresAt'] = tonumber(extended)
    fresh = cjson.encode(fields)
  else
    fresh = string.gsub(record, '"expiresAtMs":%d+', '"expiresAtMs":' .. extended, 1)
  end
  local kept = call('PEXPIRE', index_key, ttl)
  if type(kept) == 'table' then return failed(kept.err) end
  local stored = call('SET', lock_key, fresh, 'PX', ttl)
  if stored.err then return failed(stored.err) end
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
      return failed('NOPERM this user may not run ' .. command[1] .. ' on ' .. command[2])
    end
  end
  return 'T'
end

local quick_acquire, full_acquire, plain_release, full_release, plain_extend, full_extend, clean, look, test =
  byte('aArRxXcit', 1, -1)
local letters, ttls = { byte(ARGV[3], 1, -1) }, { byte(ARGV[5], 1, -1) }
local count = #letters
local ids, id_at = ARGV[4], 1
local ttl_count = tonumber(ARGV[2])
local watched = not ttl_count
if watched then ttl_count = tonumber(sub(ARGV[2], 1, -2)) end
local ttl_offset, user_key_at = byte('1') - 6, 6 + ttl_count
if count == 0 then return now_text end

-- What a watched batch says besides.
local function add_fence(status, record)
  if byte(status) ~= 76 then return status end
  return 'l' .. (fence_of(record) or '000000000000000') .. sub(status, 2)
end

-- First the one key that each operation begins with is read.
local key_count = { [full_acquire] = 3, [test] = 3 }
local first_keys = KEYS
if #KEYS ~= count then
  first_keys = {}
  local key_at = 1
  for i = 1, count do
    first_keys[i] = KEYS[key_at]
    key_at = key_at + (key_count[letters[i]] or 1)
  end
end
local first = redis.call('MGET', unpack(first_keys))

-- Then what follows from that: the lock of an index key, the fence counter of a free lock.
local second_keys, second_of, second_count = {}, {}, 0
local key_at = 1
for i = 1, count do
  local letter, value, key = letters[i], first[i], nil
  if letter == quick_acquire then
    key = not value and fence_prefix .. first_keys[i]
  elseif letter == full_acquire then
    key = not value and KEYS[key_at + 2]
  elseif letter == plain_extend or letter == plain_release or letter == full_extend or letter == full_release then
    key = value
  end
  if key then
    second_count = second_count + 1
    second_keys[second_count], second_of[i] = key, second_count
  end
  key_at = key_at + (key_count[letter] or 1)
end
local second = second_count > 0 and redis.call('MGET', unpack(second_keys))

local function next_id()
  local at = id_at
  id_at = at + 22
  return sub(ids, at, at + 21)
end

local answer = { now_text }
local deletes, deletes_count = {}, 0 -- answers that hold only if the DEL in the end succeeds
key_at = 1
for i = 1, count do
  local letter, key = letters[i], first_keys[i]
  local value = changed[key]
  if value == nil then value = first[i] end
  local follows, status = second_of[i], nil

  if letter == quick_acquire then
    if value then status = held_by_other(value, key) end
    if status then
      id_at = id_at + 22
    else
      local id = next_id()
      status = take(value, key, index_prefix .. id, fence_prefix .. key, follows and second[follows], id,
        ARGV[ttls[i] - ttl_offset], sub(key, #prefix + 1))
    end
    if watched then status = add_fence(status, value) end
  elseif letter == full_acquire then
    local id = next_id()
    if value then status = held_by(value, key, id) end
    if not status then
      status = take(value, key, KEYS[key_at + 1], KEYS[key_at + 2], follows and second[follows], id,
        ARGV[ttls[i] - ttl_offset], ARGV[user_key_at])
    end
    user_key_at = user_key_at + 1
    if watched then status = add_fence(status, value) end
  elseif letter == test then
    status = self_test(key, KEYS[key_at + 1], KEYS[key_at + 2])
  elseif letter == clean then
    status = value and clean_up(value, key) or 'N'
  elseif letter == look then
    status = value and inspect(value, key) or 'F'
  else
    local id
    if letter == full_extend or letter == full_release then id = next_id() else id = sub(key, #index_prefix + 1) end
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
    elseif letter == plain_extend or letter == full_extend then
      status = extend(record, value, key, id, ARGV[ttls[i] - ttl_offset])
    else
      status = release(record, value, key, id)
    end
    if doomed_count > doomed_before then
      deletes_count = deletes_count + 1
      deletes[deletes_count] = i + 1
    end
  end

  answer[i + 1] = status
  key_at = key_at + (key_count[letter] or 1)
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
    for i = 1, deletes_count do answer[deletes[i]] = failed(removed.err) end
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
return table.concat(answer)
