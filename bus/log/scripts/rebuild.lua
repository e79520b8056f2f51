-- Copy a shared stream into a new one. The server's memory and files then hold no bytes of its deleted entries.
--
-- KEYS  1 stream: the index, wake-ups, dead letters or the quarantine · 2 stream in which it is rebuilt
-- ARGV  1 time after which the stream expires, ms, or ""
--
-- Returns the number of entries.
--
-- A stream stores many entries in one block of memory, in which a deleted entry is only marked as deleted. All these
-- streams are capped, so the script is short. The copy has the same ids and highest id, so readers notice nothing.

local call = redis.call
local stream, building = KEYS[1], KEYS[2]
local PAGE = 100
if call('EXISTS', stream) == 0 then return 0 end
local info, highest = call('XINFO', 'STREAM', stream), nil
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then highest = info[i + 1] end
end

call('DEL', building)
call('XADD', building, '0-1', 's', '') -- creates the stream even if no entry is left
call('XDEL', building, '0-1')
local after = '-'
while true do
  local page = call('XRANGE', stream, after, '+', 'COUNT', PAGE)
  for _, entry in ipairs(page) do
    -- A foreign entry may have more fields than one call accepts. No reader uses such an entry.
    if #entry[2] <= 200 then call('XADD', building, entry[1], unpack(entry[2])) end
  end
  if #page < PAGE then break end
  after = '(' .. page[PAGE][1]
end
call('XSETID', building, highest, 'ENTRIESADDED', call('XLEN', building), 'MAXDELETEDID', '0-0')
if ARGV[1] ~= '' then call('PEXPIRE', building, ARGV[1]) end
call('RENAME', building, stream)
return call('XLEN', stream)
