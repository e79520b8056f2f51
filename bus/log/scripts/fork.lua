-- Create a session as a fork. The shared entries must be pinned at the parent, which may be on another server (pin.lua).
--
-- KEYS  1 head hash · 2 checkpoints hash · 3 sessions hash · 4 stream of change notices
-- ARGV  1 session id · 2 parent's id · 3 cursor of the last shared entry · 4 position of this entry · 5 incarnations of
--       the shared entries, or "" · 6 highest shared position that cannot be read, or 0 · 7 the fork's agent, or "" for
--       the agent of its first append · 8 and 9 MAXLEN arguments of the change notices · 10 `ends` of the head, see
--       proofs.lua, or ""
--
-- Returns "forked", also for a repeat. Otherwise nothing was written: "erased", or { "exists", the session's parent, the
-- cursor of its last shared entry }. If the existing session is not a fork, parent and cursor are "".
--
-- The head gets no `run`, so the first append begins a new incarnation. So a cursor of a later entry of the parent is
-- never taken for a cursor of the fork.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'parent', 'fork')
if head[1] == 'erased' then return 'erased' end
local function is_same(fork, cursor) -- one of the two may lack the last parts, which an earlier version did not store
  local length = math.min(#fork, #cursor)
  return string.sub(fork .. '.', 1, length + 1) == string.sub(cursor .. '.', 1, length + 1)
end
if head[3] == ARGV[2] and is_same(head[4] or '', ARGV[3]) then return 'forked' end
local damage = damage_in(KEYS[1], { 'position' }, { head[2] })
if damage then return damage end
-- A session without entries also exists if forks have pinned it. Otherwise it could become the fork of its own fork.
if head[3] or tonumber(head[2] or 0) > 0 or redis.call('HLEN', KEYS[2]) > 0 then
  return { 'exists', head[3] or '', head[4] or '' }
end
local clock = redis.call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
redis.call('HSET', KEYS[3], ARGV[1], ARGV[7] == '' and now or now .. ' ' .. ARGV[7])
if ARGV[7] ~= '' then
  count_agents(KEYS[3], nil, ARGV[7])
  redis.call('HSET', KEYS[1], 'agent', ARGV[7])
end
redis.call('HSET', KEYS[1], 'position', ARGV[4], 'created', now, 'updated', now, 'parent', ARGV[2], 'fork', ARGV[3])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'incarnations', ARGV[5], 'incarnation', string.match(ARGV[5], '[^ ]+$'))
end
if ARGV[10] ~= '' then redis.call('HSET', KEYS[1], 'ends', ARGV[10]) end
if ARGV[6] ~= '0' then redis.call('HSET', KEYS[1], 'trimmed', ARGV[6]) end
redis.pcall('XADD', KEYS[4], 'MAXLEN', ARGV[8], ARGV[9], '*', 's', ARGV[1], 'z', ARGV[4])
return 'forked'
