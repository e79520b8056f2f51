-- Move a session's archive on by one segment, if it still ends where that segment goes on.
--
-- KEYS  1 head hash · 2 archived segments, a sorted set: name -> the position it ends at · 3 LLM stream · 4 extension
--       stream
-- ARGV  1 the chain's end that the segment follows, "" for none · 2 the new end, "<number> <name>"
--       3 incarnation that wrote the position it ends at · then for each segment: the position it ends at · its name
--
-- Where 1 and 2 are the same nothing moves: names that were lost are noted again.
--
-- Gives "moved", also to a repeat; "behind" if somebody else has moved it on with another segment meanwhile, or what the
-- segment holds was trimmed meanwhile; "lost" if the log is not any more what the segment holds; "erased" if the session
-- was. With the last three nothing was written.

local head = redis.call('HMGET', KEYS[1], 'archive', 'position', 'state')
if head[3] == 'erased' then return 'erased' end
local tip = head[1] or ''
-- A repeat, also where others have gone on since; or another archiver has written the very same segment.
if tip ~= ARGV[1] then return redis.call('ZSCORE', KEYS[2], ARGV[#ARGV]) and 'moved' or 'behind' end

local last = ARGV[#ARGV - 1]
if tonumber(last) > tonumber(head[2] or 0) then return 'lost' end
if ARGV[1] ~= ARGV[2] then
  local place = last .. '-0'
  local entry = redis.call('XRANGE', KEYS[3], place, place)[1] or redis.call('XRANGE', KEYS[4], place, place)[1]
  if not entry then return 'behind' end
  if (string.match(entry[2][2] or '', '^%S+ %S+ %S+ (%S+) %S+$') or '') ~= ARGV[3] then return 'lost' end
end

for at = 4, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[at], ARGV[at + 1]) end
if ARGV[1] ~= ARGV[2] then redis.call('HSET', KEYS[1], 'archive', ARGV[2], 'archived', last) end
return 'moved'
