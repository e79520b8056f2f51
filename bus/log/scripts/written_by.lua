-- Return the header of the entry at a position, without its message. Read-only.
--
-- KEYS  1 LLM stream · 2 extension stream
-- ARGV  1 position
--
-- Returns the header, which has the token of the incarnation that wrote the entry; nil if neither stream has the position.

local place = ARGV[1] .. '-0'
for lane = 1, 2 do
  local entry = redis.call('XRANGE', KEYS[lane], place, place)[1]
  if entry then return entry[2][2] end
end
return false
