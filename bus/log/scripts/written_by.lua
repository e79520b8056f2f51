-- Return the header of the entry at a position, without its message. Read-only.
--
-- KEYS  1 LLM stream · 2 extension stream · 3 head hash
-- ARGV  1 position
--
-- Returns { header, run }. The header has the token of the incarnation that wrote the entry; it is "" if neither stream
-- has the position. The run is 1 if this server process wrote the session's last entry, else 0.

local place, header = ARGV[1] .. '-0', nil
for lane = 1, 2 do
  local entry = redis.call('XRANGE', KEYS[lane], place, place)[1]
  if entry then header = header or entry[2][2] end
end
local run = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
return { header or '', redis.call('HGET', KEYS[3], 'run') == run and 1 or 0 }
