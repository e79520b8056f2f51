-- Pin the entries that a fork will share, before the fork is created. No trim removes pinned entries.
--
-- KEYS  1 head hash · 2 checkpoints hash · 3 LLM stream · 4 extension stream
-- ARGV  1 the fork's field in the checkpoints · 2 last position to share, or "" for the session's last position
--       3 the agent that the session must belong to, or "" for any
--
-- Returns { position, incarnations that the head lists or "", highest trimmed position that is not in the archive or 0,
-- the session's agent or "", proof of the entry at the position or "" }.
-- Otherwise nothing was pinned: "erased", "agent <name>" (the session belongs to this other agent), "beyond <last
-- position>" or "trimmed <highest trimmed position>". A repeat changes nothing.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'incarnations', 'trimmed', 'archived', 'fork', 'agent')
local damage = damage_in(KEYS[1], { 'position', 'trimmed', 'archived' }, { head[2], head[4], head[5] })
if damage and head[1] ~= 'erased' then return damage end
local last, trimmed, archived = tonumber(head[2] or 0), tonumber(head[4] or 0), tonumber(head[5] or 0)
local at = ARGV[2] == '' and last or tonumber(ARGV[2])
if head[1] == 'erased' then return 'erased' end
if ARGV[3] ~= '' and ARGV[3] ~= (head[7] or '') then return 'agent ' .. (head[7] or '') end
if at > last or at < 0 then return 'beyond ' .. last end
-- If the parent is a fork, `trimmed` may be among the entries that it shares. Its archive holds only later entries.
local shared = stored(string.match(head[6] or '', '^%d+')) or 0
if trimmed > shared and (at <= shared or archived >= trimmed or archived >= at) then trimmed = 0 end
if at < trimmed then return 'trimmed ' .. trimmed end
redis.call('HSET', KEYS[2], ARGV[1], 0)
local place = at .. '-0'
local entry = redis.call('XRANGE', KEYS[3], place, place)[1] or redis.call('XRANGE', KEYS[4], place, place)[1]
return { at, head[3] or '', trimmed, head[7] or '', entry and proof_in(entry[2][2]) or '' }
