-- Append a segment to the chain of a session's archive, if the chain still ends where the segment continues.
--
-- KEYS  1 head hash · 2 sorted set of archived segments: name -> last position · 3 LLM stream · 4 extension stream
-- ARGV  1 present end of the chain, "" for none · 2 new end, "<number> <name>"
--       3 incarnation and 4 proof of the segment's last entry · then for each segment: its last position · its name
--
-- If ARGV 1 and 2 are equal, the chain stays the same, and lost names are added again to the sorted set.
--
-- Returns "moved", also for a repeat. With the other answers nothing was written:
--   "behind"  another archiver has appended another segment, or the segment's entries were trimmed
--   "lost"    the log no longer has the segment's entries
--   "erased"  the session was erased

local head = redis.call('HMGET', KEYS[1], 'archive', 'position', 'state')
if head[3] == 'erased' then return 'erased' end
local damage = damage_in(KEYS[1], { 'position' }, { head[2] })
if damage then return damage end
local tip = head[1] or ''
-- A known segment is a repeat, even if the chain has grown since. Or another archiver has written the same segment.
if tip ~= ARGV[1] then return redis.call('ZSCORE', KEYS[2], ARGV[#ARGV]) and 'moved' or 'behind' end

local last = ARGV[#ARGV - 1]
if tonumber(last) > tonumber(head[2] or 0) then return 'lost' end
if ARGV[1] ~= ARGV[2] then
  local place = last .. '-0'
  local entry = redis.call('XRANGE', KEYS[3], place, place)[1] or redis.call('XRANGE', KEYS[4], place, place)[1]
  if not entry then return 'behind' end
  if (string.match(entry[2][2] or '', '^%S+ %S+ %S+ (%S+) %S+$') or '') ~= ARGV[3] then return 'lost' end
  if (proof_in(entry[2][2]) or '') ~= ARGV[4] then return 'lost' end
end

for at = 5, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[at], ARGV[at + 1]) end
if ARGV[1] ~= ARGV[2] then redis.call('HSET', KEYS[1], 'archive', ARGV[2], 'archived', last) end
return 'moved'
