-- Return the state of a group's work for one agent in a bucket. Read-only.
--
-- KEYS  1 to 6 see work.lua
-- ARGV  1 to 4 see work.lua · 5 most sessions without a consumer to count · 6 most assigned sessions to name
--       7 "1" to count the sessions that wait for a group that has not begun; else there are none
--
-- Returns a list:
--   number of sessions that wait for a consumer · 1 if there may be more waiting sessions, else 0
--   number of sessions that wait for a retry · time of the first retry, milliseconds of the clock; 0 if there is none
--   { consumer, number of its sessions, … } · { consumer, session, … } · the waiting session that was woken first, or ""

local PAGE = 500
local most, named_most = tonumber(ARGV[5]), tonumber(ARGV[6])
local waiting, is_more, delayed, due = 0, 0, 0, 0
local pending, counts, in_hand, open = {}, {}, {}, {}
local longest, longest_order = '', nil
local function wait(session, order)
  waiting = waiting + 1
  if not longest_order or order < longest_order then longest, longest_order = session, order end
end
local at = (ARGV[7] == '1' or call('HGET', KEYS[4], place)) and '(' .. text_of(mark()) or '(+inf'
local function is_new(session, order)
  local score = order_of(call('ZSCORE', KEYS[1], session)) or 0
  return score > mark() and score > order -- woken since it was nacked
end
for _, session in ipairs(call('HKEYS', KEYS[5])) do
  local work = read(session)
  if work then
    open[session] = work
    if work.holder ~= '' then
      if not counts[work.holder] then pending[#pending + 1] = work.holder end
      counts[work.holder] = (counts[work.holder] or 0) + 1
      if #in_hand < 2 * named_most then
        in_hand[#in_hand + 1] = work.holder
        in_hand[#in_hand + 1] = session
      end
    elseif work.flags ~= 'd' then
      local at = stored(call('ZSCORE', KEYS[6], session)) or 0
      if work.flags == 'r' and not is_new(session, work.order) then
        delayed = delayed + 1
        if due == 0 or at < due then due = at end
      else
        wait(session, work.order)
      end
    end
  end
end
local seen, top = 0, '(1e15' -- a foreign client wrote the numbers above
while true do
  local page = call('ZRANGEBYSCORE', KEYS[1], at, top, 'WITHSCORES', 'LIMIT', 0, math.min(PAGE, most - seen))
  for i = 1, #page, 2 do
    local work = open[page[i]]
    if not work or work.flags == 'd' and work.order < tonumber(page[i + 1]) then wait(page[i], tonumber(page[i + 1])) end
  end
  seen = seen + #page / 2
  if #page == 0 then break end
  at = '(' .. page[#page]
  if seen >= most then
    is_more = call('ZCOUNT', KEYS[1], at, top) > 0 and 1 or 0
    break
  end
end
local each = {}
for _, name in ipairs(pending) do
  each[#each + 1] = name
  each[#each + 1] = text_of(counts[name])
end
return { waiting, is_more, delayed, due, each, in_hand, longest }
