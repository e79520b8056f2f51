-- How a group stands with one bucket. It changes nothing.
--
-- KEYS  1 index stream · 2 retry sorted set · 3 retries hash · 4 dead letters stream · 5 groups hash
-- ARGV  1 group · 2 the most entries to look at to count what was not given · 3 the most works in hand to name
--
-- Gives { ringing pointers that were not given to anybody, 1 if there may be more, how many are put off, when the next of
-- those is due (milliseconds of the clock, 0 if none), how many are with a consumer of those, dead letters, letters that
-- made room, { consumer, pending, … }, { consumer, session, … } of works in hand }.

local PAGE = 500
local call, pcall_, match = redis.call, redis.pcall, string.match
local group, most, named_most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function named(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

local waiting, is_more, pending, in_hand, delivered = 0, 0, {}, {}, '0-0'
local groups = pcall_('XINFO', 'GROUPS', KEYS[1])
for _, info in ipairs(groups.err and {} or groups) do
  local found = named(info)
  if found.name == group then delivered = found['last-delivered-id'] end
end
local after, seen = '(' .. delivered, 0
while true do
  local page = call('XRANGE', KEYS[1], after, '+', 'COUNT', math.min(PAGE, most - seen))
  for _, entry in ipairs(page) do
    if (named(entry[2]).w or '') ~= '' then waiting = waiting + 1 end
  end
  seen = seen + #page
  if #page == 0 then break end
  after = '(' .. page[#page][1]
  if seen >= most then
    is_more = #call('XRANGE', KEYS[1], after, '+', 'COUNT', 1)
    break
  end
end

local consumers = pcall_('XINFO', 'CONSUMERS', KEYS[1], group)
for _, info in ipairs(consumers.err and {} or consumers) do
  local found = named(info)
  pending[#pending + 1] = found.name
  pending[#pending + 1] = string.format('%d', found.pending)
end
local items = pcall_('XPENDING', KEYS[1], group, '-', '+', named_most)
for _, item in ipairs(items.err and {} or items) do
  local entry = call('XRANGE', KEYS[1], item[1], item[1])[1]
  local fields = entry and named(entry[2]) or {}
  if fields.s and (fields.w or '') ~= '' then
    in_hand[#in_hand + 1] = item[2]
    in_hand[#in_hand + 1] = fields.s
  end
end

-- What is taken has a time too: that at which it is given again, if nobody keeps it.
local taken, due, count = 0, 0, call('ZCARD', KEYS[2])
local scores = call('ZRANGE', KEYS[2], 0, PAGE - 1, 'WITHSCORES')
for i = 1, #scores, 2 do
  local session, holder = match(call('HGET', KEYS[3], group .. ' ' .. scores[i]) or '', '^%d+ %d+ (%S+) (%S*) ')
  if (holder or '') == '' then
    if due == 0 then due = tonumber(scores[i + 1]) end
  else
    taken = taken + 1
    if taken <= named_most then
      in_hand[#in_hand + 1] = holder
      in_hand[#in_hand + 1] = session
    end
  end
end
local dropped = tonumber(call('HGET', KEYS[5], group .. ':dropped') or 0)
return { waiting, is_more, count, due, taken, call('XLEN', KEYS[4]), dropped, pending, in_hand }
