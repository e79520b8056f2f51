-- Delete the live deltas of messages that have ended. Safe to repeat.
--
-- KEYS  1 head hash · 2 live stream
-- ARGV  ids of deltas
--
-- Returns the bytes that are left in the stream. preview.lua describes the head's field `live`.

local call = redis.call
local ENTRY_BYTES = 64
local last, bytes, tag = string.match(call('HGET', KEYS[1], 'live') or '', '^(%d+%-%d+) (%d+)(.*)$')
if not last or #bytes > 15 then return 0 end -- damaged: preview.lua tells
bytes = tonumber(bytes)
for _, id in ipairs(ARGV) do
  local entry = call('XRANGE', KEYS[2], id, id)[1]
  if entry then
    bytes = bytes - #(entry[2][4] or '') - ENTRY_BYTES
    call('XDEL', KEYS[2], id)
  end
end
if bytes < 0 then bytes = 0 end
call('HSET', KEYS[1], 'live', last .. ' ' .. string.format('%d', bytes) .. tag)
return bytes
