-- Begin to erase a session: put the tombstone in the place of its head, and wake who waits for what comes.
--
-- KEYS  1 head hash · 2 LLM stream · 3 extension stream · 4 checkpoints hash · 5 index stream · 6 sessions hash ·
--       7 order · 8 woken hash · 9 groups hash · 10 archived segments
-- ARGV  1 session id · 2 "1" to do it although forks share its entries · 3 how the index is trimmed · 4 to which length
--       5 "1" if the caller can erase what is archived
--
-- Gives four lists: the outcome, what it tells, the groups of the bucket, and the fields of the checkpoints. The outcome
-- is one of
--   "archived"  some of it is archived, and nothing was done
--   "held"      it tells the forks that share its entries, and nothing was done
--   "erased"    it tells the first id that the index and the wake-ups may name the session at, the last one of each, the
--               id of the notice that this gave, or "", and the parent of a fork, or ""
-- Once it is erased nobody can write to the session, and what is left of it can be taken away step by step. A repeat
-- changes nothing, and knows of no ids.
--
-- The head of a fork keeps its `parent` until the last step, in which the parent is told to keep nothing for it.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'bytes', 'parent', 'created', 'updated', 'archived')
local groups, checkpoints, parent = redis.call('HKEYS', KEYS[9]), redis.call('HKEYS', KEYS[4]), head[4] or ''
if ARGV[5] ~= '1' and (tonumber(head[7] or 0) > 0 or redis.call('EXISTS', KEYS[10]) == 1) then
  return { { 'archived' }, {}, {}, {} } -- an erasure that was cut off may have left the second
end
if head[1] == 'erased' then return { { 'erased' }, { '-', '+', '+', '', parent }, groups, checkpoints } end
local forks = {}
for _, name in ipairs(checkpoints) do
  if string.sub(name, 1, 2) == 'f:' then forks[#forks + 1] = string.sub(name, 3) end
end
if #forks > 0 and ARGV[2] ~= '1' then return { { 'held' }, forks, {}, {} } end
redis.call('HGET', KEYS[6], ARGV[1]) -- this and the next end the step here where a key is not of its type
redis.call('ZCARD', KEYS[7])
local hinted = redis.call('HGET', KEYS[8], ':hinted')

redis.call('UNLINK', KEYS[1]) -- the first write is one that a server without memory takes; it then takes the others too
redis.call('HSET', KEYS[1], 'state', 'erased')
if head[4] then redis.call('HSET', KEYS[1], 'parent', head[4]) end
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('ZREM', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
if tonumber(head[3] or 0) > 0 then redis.call('HINCRBY', KEYS[6], ':bytes', -tonumber(head[3])) end

-- A blocked read of a stream is not told that the stream went: it gets an entry, looks at the head, and finds this.
local position, notice = tonumber(head[2] or 0), ''
if position > 0 then
  for lane = 2, 3 do redis.pcall('XADD', KEYS[lane], (position + 1) .. '-0', 'h', '', 'm', '') end
  notice = redis.pcall('XADD', KEYS[5], 'MAXLEN', ARGV[3], ARGV[4], '*', 's', ARGV[1], 'z', position .. '')
  if type(notice) ~= 'string' then notice = '' end
end
local first, updated, last = '-', '+', '+'
if head[5] and head[6] then -- a second more on both sides, as wake.lua says
  first, updated = math.max(head[5] - 1000, 0), head[6] + 1000
  last = math.max(updated, tonumber(hinted or 0))
  first, updated, last = string.format('%.0f', first), string.format('%.0f', updated), string.format('%.0f', last)
end
return { { 'erased' }, { first, updated, last, notice, parent }, groups, checkpoints }
