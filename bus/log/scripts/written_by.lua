-- Return the header of the entry at a position, without its message. Read-only.
--
-- KEYS  1 LLM stream · 2 extension stream · 3 head hash
-- ARGV  1 position
--
-- Returns { header, present }. The header has the token of the incarnation that wrote the entry; it is "" if neither stream
-- has the position. `present` is the session's incarnation if this server process wrote its last entry, else "".

local place, header = ARGV[1] .. '-0', nil
for lane = 1, 2 do
  local entry = redis.call('XRANGE', KEYS[lane], place, place)[1]
  if entry then header = header or entry[2][2] end
end
local run = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
local head = redis.call('HMGET', KEYS[3], 'run', 'incarnation')
return { header or '', head[1] == run and head[2] or '' }
