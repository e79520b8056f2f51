-- Note at a session that a fork shares its beginning, before the fork is there: what it shares is not trimmed then.
--
-- KEYS  1 head hash · 2 checkpoints hash
-- ARGV  1 name among the checkpoints · 2 position to fork at, or "" for the last one
--
-- Gives position · incarnations that the head lists, or "" · the highest position that was trimmed away and is in no
-- archive; or, where nothing was noted, "erased", "beyond <last position>" or "trimmed <highest position>". A repeat
-- notes nothing new.

local head = redis.call('HMGET', KEYS[1], 'state', 'position', 'incarnations', 'trimmed', 'archived', 'fork')
local last, trimmed, archived = tonumber(head[2] or 0), tonumber(head[4] or 0), tonumber(head[5] or 0)
local at = ARGV[2] == '' and last or tonumber(ARGV[2])
if head[1] == 'erased' then return 'erased' end
if at > last or at < 0 then return 'beyond ' .. last end
-- Of a fork: what it shares was gone before it began, and only what is behind that is its own and in its archive.
local shared = tonumber(string.match(head[6] or '', '^%d+') or 0)
if trimmed > shared and (at <= shared or archived >= trimmed or archived >= at) then trimmed = 0 end
if at < trimmed then return 'trimmed ' .. trimmed end
redis.call('HSET', KEYS[2], ARGV[1], 0)
return { at, head[3] or '', trimmed }
