-- The consumers of a group, and their last signs of life. It changes nothing.
--
-- KEYS  1 alive sorted set · 2 consumers hash
--
-- Gives { milliseconds of the clock, then for each its name and "<milliseconds of the sign> <heartbeat> <sessions>
-- <milliseconds at which it counts as silent>" }.

local clock = redis.call('TIME')
local found = { string.format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000)) }
local told = redis.call('HGETALL', KEYS[2])
for i = 1, #told, 2 do
  found[#found + 1] = told[i]
  found[#found + 1] = told[i + 1] .. ' ' .. (redis.call('ZSCORE', KEYS[1], told[i]) or '0')
end
return found
