-- First step of an erasure: replace the session's head by a tombstone, and wake readers that wait for new entries.
--
-- KEYS  1 head hash · 2 LLM stream · 3 extension stream · 4 checkpoints hash · 5 index stream · 6 sessions hash ·
--       7 order of the session's agent, a sorted set · 8 woken hash · 9 groups hash · 10 sorted set of archived segments
-- ARGV  1 session id · 2 "1" to erase even if forks share entries · 3 and 4 MAXLEN arguments of the index
--       5 "1" if the caller can erase the archive · 6 the session's agent, or ""
--
-- Returns four lists: the outcome, its details, the fields of the groups hash, and the fields of the checkpoints. Outcomes:
--   "agent"     nothing was changed, because the session belongs to another agent; details: its name
--   "archived"  nothing was changed, because entries are archived
--   "held"      nothing was changed, because forks share entries; details: the forks
--   "erased"    details: the first id in index and wake-ups that may name the session, the last such id in the index,
--               the last such id in the wake-ups, the id of the notice that this step added or "", and the parent of a
--               fork or ""
-- Afterwards no client can write to the session, and its other keys can be deleted step by step. A repeat changes
-- nothing and returns no ids.
--
-- The head of a fork keeps its `parent` until the last step, which removes the fork's pin from the parent.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'bytes', 'parent', 'created', 'updated', 'archived', 'agent')
local groups, checkpoints = redis.call('HKEYS', KEYS[9]), redis.call('HKEYS', KEYS[4])
-- A damaged session can be erased: its damaged fields count as missing.
if head[4] and not string.find(head[4], '^[%w_-]+$') then head[4] = nil end
if not head[8] then head[8] = string.match(redis.call('HGET', KEYS[6], ARGV[1]) or '', '^%d+ (.+)$') end -- the head is gone
if head[8] and not is_agent(head[8]) then head[8] = nil end
local parent = head[4] or ''
local position, bytes, archived = stored(head[2]) or 0, stored(head[3]) or 0, stored(head[7]) or 0
if ARGV[5] ~= '1' and (archived > 0 or redis.call('EXISTS', KEYS[10]) == 1) then
  return { { 'archived' }, {}, {}, {} } -- after an interrupted erasure, only the archived segments may be left
end
if head[1] == 'erased' then return { { 'erased' }, { '-', '+', '+', '', parent }, groups, checkpoints } end
if (head[8] or '') ~= ARGV[6] then return { { 'agent' }, { head[8] or '' }, {}, {} } end
local forks = {}
for _, name in ipairs(checkpoints) do
  if string.sub(name, 1, 2) == 'f:' then forks[#forks + 1] = string.sub(name, 3) end
end
if #forks > 0 and ARGV[2] ~= '1' then return { { 'held' }, forks, {}, {} } end
redis.call('HGET', KEYS[6], ARGV[1]) -- if a key has a wrong type, the next reads end the script before its first write
redis.call('ZCARD', KEYS[7])
local hinted = redis.call('HGET', KEYS[8], ':hinted')

redis.call('UNLINK', KEYS[1]) -- a full server accepts this as the first write, and after that all other writes
redis.call('HSET', KEYS[1], 'state', 'erased')
if head[4] then redis.call('HSET', KEYS[1], 'parent', head[4]) end
if redis.call('HDEL', KEYS[6], ARGV[1]) == 1 and head[8] then count_agents(KEYS[6], head[8], nil) end
redis.call('ZREM', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
if bytes > 0 then count_bytes(KEYS[6], -bytes, 0) end

-- Deleting a stream does not end blocking reads of it. So add an entry: the readers then read the head and find the
-- tombstone.
local notice = ''
if position > 0 then
  for lane = 2, 3 do redis.pcall('XADD', KEYS[lane], string.format('%.0f-0', position + 1), 'h', '', 'm', '') end
  notice = add_hint(KEYS[5], 'MAXLEN', ARGV[3], ARGV[4], '*', 's', ARGV[1], 'z', position .. '')
  if type(notice) ~= 'string' then notice = '' end
end
local first, updated, last
local created = stored(head[5])
updated = stored(head[6])
if created and updated then -- the ids, with a margin of one second on both sides; see wake.lua
  first, updated = math.max(created - 1000, 0), updated + 1000
  last = math.max(updated, stored(hinted) or 0)
  first, updated, last = string.format('%.0f', first), string.format('%.0f', updated), string.format('%.0f', last)
else
  first, updated, last = '-', '+', '+'
end
return { { 'erased' }, { first, updated, last, notice, parent }, groups, checkpoints }
