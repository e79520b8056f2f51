-- Set aside what somebody else wrote into a lane's stream above the session's position, so that appending goes on.
--
-- KEYS  1 head hash · 2 lane's stream · 3 stream of what was set aside
-- ARGV  1 session id · 2 name of the lane
--
-- Gives the ids that were set aside. Their fields stay readable in KEYS[3]. Only the bus moves a session's position,
-- in the same step as its entries, so an entry above it cannot be the bus's own.

local position = tonumber(redis.call('HGET', KEYS[1], 'position') or 0)
local forged = redis.call('XRANGE', KEYS[2], '(' .. position .. '-0', '+')
local ids = {}
for i, entry in ipairs(forged) do
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', 1000, '*', 's', ARGV[1], 'lane', ARGV[2], 'id', entry[1], unpack(entry[2]))
  redis.call('XDEL', KEYS[2], entry[1])
  ids[i] = entry[1]
end
if ids[1] then
  redis.call('XSETID', KEYS[2], position .. '-0', 'ENTRIESADDED', redis.call('XLEN', KEYS[2]), 'MAXDELETEDID', '0-0')
end
return ids
