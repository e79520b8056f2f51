-- Quarantine entries that a foreign client wrote into a lane above the session's position, so that appends work again.
--
-- KEYS  1 head hash · 2 lane's stream · 3 quarantine stream · 4 stream in which the lane is rebuilt
-- ARGV  1 session id · 2 name of the lane
--
-- Returns the ids of the quarantined entries, 1,000 at most. The quarantine keeps their content until it is full. Or
-- returns "headless <last position>" and changes nothing: there is no head, and the lane has entries of several publishes.
-- A file that was cut off may have the entries of one publish without their head.
--
-- The bus raises a session's position in the same step in which it adds entries. So an entry above the position is foreign.
--
-- A stream keeps its highest id even if the entry with that id is deleted, and Valkey does not allow lowering the id. So
-- the lane is copied without the foreign entries, and the copy is renamed. This is slow for a long lane, but a client that
-- can write to the lane could also delete it.

local head = redis.call('HMGET', KEYS[1], 'position', 'incarnation', 'updated')
local damage = damage_in(KEYS[1], { 'position' }, head)
if damage then return damage end
local position = stored(head[1]) or 0
-- The entries are the bus's own, unless a torn file has no more than the first writes of an append.
if position == 0 and head[2] and head[2] ~= '' and head[3] then return damaged(KEYS[1], 'position') end
local lane, kept_key, building = KEYS[2], KEYS[3], KEYS[4]
if redis.call('EXISTS', lane) == 0 then return {} end
local info = redis.call('XINFO', 'STREAM', lane)
local highest = ''
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then highest = info[i + 1] end
end
if tonumber(string.match(highest, '^%d+')) <= position then return {} end

-- The header without the checksum is the same in all entries of a publish.
local function publish_of(entry)
  return string.match(entry[2][2] or '', '^(%S+ %S+ %S+ %d+_%S+) %S+$')
end
if position == 0 then
  local first = redis.call('XRANGE', lane, '-', '+', 'COUNT', 1)[1]
  local last = redis.call('XREVRANGE', lane, '+', '-', 'COUNT', 1)[1]
  if first and publish_of(first) and publish_of(last) and publish_of(first) ~= publish_of(last) then
    return 'headless ' .. string.match(last[1], '^%d+')
  end
end

local PAGE = 25 -- most entries in the script's memory at a time, because each may have a megabyte
local ids = {}
local first = (position + 1) .. '-0'
while #ids < 1000 do
  local page = redis.call('XRANGE', lane, first, '+', 'COUNT', PAGE)
  for _, entry in ipairs(page) do
    -- A foreign entry may have more fields than one call accepts.
    local fields = {}
    for f = 1, math.min(#entry[2], 64) do fields[f] = entry[2][f] end
    redis.call('XADD', kept_key, 'MAXLEN', '~', 1000, '*', 's', ARGV[1], 'lane', ARGV[2], 'id', entry[1], unpack(fields))
    ids[#ids + 1] = entry[1]
  end
  if #page < PAGE then break end
  first = '(' .. page[PAGE][1]
end

redis.call('DEL', building)
local after = '-'
while true do
  local page = redis.call('XRANGE', lane, after, position .. '-18446744073709551615', 'COUNT', PAGE)
  for _, entry in ipairs(page) do
    if #entry[2] <= 64 then redis.call('XADD', building, entry[1], unpack(entry[2])) end
  end
  if #page < PAGE then break end
  after = '(' .. page[PAGE][1]
end
if redis.call('EXISTS', building) == 1 then
  redis.call('RENAME', building, lane)
else
  redis.call('DEL', lane)
end
return ids
