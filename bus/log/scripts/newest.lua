-- Return the sessions that changed last, among some of one bucket. Read-only.
--
-- KEYS  head hashes
-- ARGV  1 which: "any", "open", "closed", "forked", "trimmed" or "archived" · 2 most sessions · 3 latest time, ms, or ""
--       · 4 the key that sessions of that time must follow
--
-- Returns { number of the sessions in this state, index in KEYS from 1, time of the last append in ms, index, time, … },
-- the newest first. Sessions of one time are in the order of their keys.

local which, most, latest, follows = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local function is_wanted(state, parent, trimmed, archived)
  if which == 'open' then return state ~= 'closed' end
  if which == 'closed' then return state == 'closed' end
  if which == 'forked' then return parent end
  if which == 'trimmed' then return (stored(trimmed) or 0) > 0 end
  if which == 'archived' then return (stored(archived) or 0) > 0 end
  return true
end

local matching, found = 0, {}
for i, key in ipairs(KEYS) do
  local head
  if which == 'any' then -- half the time of five fields; an erased head has no time
    head = redis.pcall('HGET', key, 'updated')
    head = type(head) == 'table' and head or { head }
  else
    head = redis.pcall('HMGET', key, 'updated', 'state', 'parent', 'trimmed', 'archived')
  end
  local time = not head.err and stored(head[1]) -- without a readable time, the head is damaged or of an empty session
  if time and head[2] ~= 'erased' and is_wanted(head[2], head[3], head[4], head[5]) then
    matching = matching + 1
    if not latest or time < latest or (time == latest and key > follows) then found[#found + 1] = { time, key, i } end
  end
end
table.sort(found, function(one, other)
  if one[1] ~= other[1] then return one[1] > other[1] end
  return one[2] < other[2]
end)
local answer = { matching }
for i = 1, math.min(most, #found) do
  answer[#answer + 1] = found[i][3]
  answer[#answer + 1] = string.format('%d', found[i][1])
end
return answer
