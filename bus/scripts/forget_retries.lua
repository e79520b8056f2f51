-- Take work of a session out of what consumer groups have put off: one step.
--
-- KEYS  1 retries hash · then the retry sorted set of each group
-- ARGV  1 session id · 2 where to begin, "0" at first · 3 about how many to look at · then the names of the groups
--
-- Gives where the next step begins, or "" at the end.

local call, match = redis.call, string.match
local sets = {}
for i = 4, #ARGV do sets[ARGV[i]] = KEYS[i - 2] end
local page = call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #page[2], 2 do
  if match(page[2][i + 1], '^%d+ %d+ (%S+) ') == ARGV[1] then
    local group, pointer = match(page[2][i], '^(%S+) (%S+)$')
    if sets[group] then call('ZREM', sets[group], pointer) end
    call('HDEL', KEYS[1], page[2][i])
  end
end
return page[1] == '0' and '' or page[1]
