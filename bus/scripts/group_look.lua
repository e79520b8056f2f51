-- Look into a bucket for work of a group that is not new, and give some of it to a consumer.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash · 4 groups hash
-- ARGV  1 group · 2 consumer · 3 heartbeat in milliseconds · 4 the most to give; 0 only counts it · 5 "1" if what is pending
--       with this consumer is given whatever its age · 6 "1" to note how far the group is · 7 milliseconds after which a
--       consumer without pending pointers is removed, or "" · then the pointers that the consumer has in hand
--
-- Gives { how much there is that was not given, milliseconds to the next retry or -1, then a list for each that was given:
-- pointer, session, position, attempt, error, "r" if it was put off }. 1,000 of each sort are looked at.
--
-- There is work of three sorts: pending with this consumer since before it began, or since an answer was lost; pending
-- with anybody for a whole heartbeat without a sign of life; put off, and due. What is given of the last is due again
-- after a heartbeat. Pointers that ring no worker, and those that were trimmed, are acknowledged here.
--
-- A group that is not there is made, to go on where it was: behind the last pointer up to which all was acknowledged. Where
-- that is not known, or the index is another one than it was, as it has had fewer entries or lower ids, from the beginning:
-- a look too many is cheap, a missed bell is not. How far it is, is noted as "<id> <entries the index had by then>".

local PAGE = 1000
local call, pcall_, match = redis.call, redis.pcall, string.match
local group, consumer, heartbeat, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function named(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

local function is_after(id, other)
  local ms, n = match(id, '^(%d+)-(%d+)$')
  local other_ms, other_n = match(other, '^(%d+)-(%d+)$')
  if ms == other_ms then return tonumber(n) > tonumber(other_n) end
  return tonumber(ms) > tonumber(other_ms)
end

local function stands_at()
  for _, info in ipairs(call('XINFO', 'GROUPS', KEYS[1])) do
    local found = named(info)
    if found.name == group then return found['last-delivered-id'] end
  end
end

local function make()
  local id, added = match(call('HGET', KEYS[4], group) or '', '^(%S+) (%d+)$')
  if id then
    local index = call('EXISTS', KEYS[1]) == 1 and named(call('XINFO', 'STREAM', KEYS[1]))
    local is_same = index and index['entries-added'] >= tonumber(added) and not is_after(id, index['last-generated-id'])
    if not is_same then id = nil end
  end
  call('XGROUP', 'CREATE', KEYS[1], group, id or '0', 'MKSTREAM')
  if not id then call('HSET', KEYS[4], group, '0-0 0') end
end

-- The id before another one; where numbers are not exact, one that is earlier still.
local function before(id)
  local ms, n = match(id, '^(%d+)-(%d+)$')
  if n == '0' then return string.format('%d-18446744073709551615', tonumber(ms) - 1) end
  return ms .. '-' .. (#n > 15 and '0' or string.format('%d', tonumber(n) - 1))
end

local summary = pcall_('XPENDING', KEYS[1], group)
if summary.err then
  if not match(summary.err, '^NOGROUP') then return summary end
  make()
  summary = call('XPENDING', KEYS[1], group)
end

local in_hand = {}
for i = 8, #ARGV do in_hand[ARGV[i]] = true end

-- What is pending and can be given, as pointers in order, each with how often it was given.
local waiting, times = {}, {}
local function look(pending)
  for _, item in ipairs(pending) do
    if not in_hand[item[1]] and not times[item[1]] then
      waiting[#waiting + 1], times[item[1]] = item[1], item[4]
    end
  end
end
if summary[1] > 0 then
  if ARGV[5] == '1' then
    local first = '-'
    repeat -- what is in hand may fill a page
      local page = call('XPENDING', KEYS[1], group, first, '+', PAGE, consumer)
      look(page)
      first = #page == PAGE and '(' .. page[PAGE][1]
    until not first or #waiting >= PAGE
  end
  look(call('XPENDING', KEYS[1], group, 'IDLE', heartbeat, '-', '+', PAGE))
end
local due = {}
for _, pointer in ipairs(call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, PAGE)) do
  if not in_hand[pointer] then due[#due + 1] = pointer end
end
local given, left = {}, 0

for at, pointer in ipairs(waiting) do
  if #given >= most then
    left = left + #waiting - at + 1
    break
  end
  local entry = call('XCLAIM', KEYS[1], group, consumer, 0, pointer)[1] -- takes one that was trimmed off the list
  local fields = entry and entry[2] and named(entry[2]) or {}
  local is_one = match(fields.s or '', '^[%w_-]+$') and #fields.s <= 64 and match(fields.z or '', '^%d+$')
  if entry and (fields.w or '') ~= '' and is_one then
    given[#given + 1] = { pointer, fields.s, fields.z, times[pointer] + 1, '', '' }
  else
    call('XACK', KEYS[1], group, pointer)
  end
end

for at, pointer in ipairs(due) do
  if #given >= most then
    left = left + #due - at + 1
    break
  end
  local field = group .. ' ' .. pointer
  local attempt, position, session, rest = match(call('HGET', KEYS[3], field) or '', '^(%d+) (%d+) (%S+) (.*)$')
  if attempt then
    local text = match(rest, '^%S* (.*)$') or ''
    attempt = attempt + 1
    call('ZADD', KEYS[2], now + heartbeat, pointer)
    call('HSET', KEYS[3], field, string.format('%d %s %s %s %s', attempt, position, session, consumer, text))
    given[#given + 1] = { pointer, session, position, attempt, text, 'r' }
  else
    call('ZREM', KEYS[2], pointer)
  end
end

if ARGV[6] == '1' then
  local pending = call('XPENDING', KEYS[1], group)
  local id = pending[1] > 0 and before(pending[2]) or stands_at()
  local place = id .. ' ' .. named(call('XINFO', 'STREAM', KEYS[1]))['entries-added']
  if call('HGET', KEYS[4], group) ~= place then call('HSET', KEYS[4], group, place) end
end
if ARGV[7] ~= '' then
  for _, info in ipairs(call('XINFO', 'CONSUMERS', KEYS[1], group)) do
    local other = named(info)
    if other.pending == 0 and other.name ~= consumer and other.idle > tonumber(ARGV[7]) then
      call('XGROUP', 'DELCONSUMER', KEYS[1], group, other.name)
    end
  end
end

local soonest = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
return { left, soonest and math.max(tonumber(soonest) - now, 0) or -1, unpack(given) }
