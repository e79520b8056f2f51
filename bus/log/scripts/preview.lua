-- Append live deltas below the session's newest position. A repeat adds nothing.
--
-- KEYS  1 head hash · 2 live stream · 3 index of live deltas, a stream, on which a follower of many sessions blocks
--       instead of on each session's own stream
-- ARGV  1 producer · 2 entry version · 3 number of this call, growing · 4 epoch of the lease, or "" · 5 most bytes in
--       the live stream · 6 expiry, milliseconds · 7 "1" if the call only ends messages · 8 session id · 9 length of the
--       index · 10 number of this producer's last answered call for the session, or 0 · then the JSON of each delta
--
-- Returns "ok <id of the last delta> <bytes before> <bytes after>". Otherwise nothing was added: "fenced <epoch>",
-- "erased", "closed", "full <bytes>", or "lost <position>". "lost" means that the server took over without this
-- producer's last deltas, so that the new deltas would leave a gap.
--
-- Two fields of the head belong to this script and to trim_live.lua:
--   live     "<highest id so far> <bytes in the stream>". The field outlives the stream, so that no id is used twice. If
--            the server's replication id has changed since the last publish, the new id follows as a third word
--   live_by  "<producer> <number>" of the last two producers
-- Both values stay below 64 bytes, because with a longer value the server would store the whole head in a larger form.

local call, match = redis.call, string.match
local AHEAD = 1048576 -- more than the number of deltas below any position
local ENTRY_BYTES = 64 -- about the server's memory for an entry besides its JSON
local producer, number, most = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local head = call('HMGET', KEYS[1], 'position', 'epoch', 'state', 'live', 'live_by', 'run', 'incarnation', 'ends')
if head[3] == 'erased' then return 'erased' end
local damage = damage_in(KEYS[1], { 'position', 'epoch' }, head)
if damage then return damage end
local position, epoch = head[1] or '0', head[2] or '0'
local last, bytes, written_under = match(head[4] or '0-0 0', '^(%d+%-%d+) (%d+) ?(%x*)$')
if not last or not stored(bytes) then return damaged(KEYS[1], 'live') end
if head[7] and match(head[7], '[^%w_-]') then return damaged(KEYS[1], 'incarnation') end
if call('EXISTS', KEYS[2]) == 0 then bytes = 0 end
bytes = tonumber(bytes)

if ARGV[4] ~= '' and ARGV[4] ~= epoch then return 'fenced ' .. epoch end
local run = match(call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
local is_another = head[6] and head[6] ~= run -- the last entry was appended under another replication id
local others, known = '', is_another and written_under ~= run and 0 or tonumber(ARGV[10])
for name, last_number in string.gmatch(head[5] or '', '(%S+) (%d+)') do
  if name ~= producer then
    if others == '' then others = ' ' .. name .. ' ' .. last_number end
  elseif number <= tonumber(last_number) then
    return 'ok ' .. last .. ' ' .. bytes .. ' ' .. bytes
  else
    known = tonumber(last_number)
  end
end
local after = bytes
for i = 11, #ARGV do after = after + #ARGV[i] + ENTRY_BYTES end
if ARGV[7] ~= '1' then
  if known < tonumber(ARGV[10]) then return 'lost ' .. position end
  if head[3] == 'closed' then return 'closed' end
  if after > most then return 'full ' .. bytes end
end

local clock = call('TIME')
local header = ARGV[2] .. ' ' .. clock[1] .. string.format('%03d', math.floor(clock[2] / 1000)) .. ' ' .. producer
if head[7] and head[7] ~= '' then -- the token and the proof of the entry at this position
  local proof = proof_among(head[8], position)
  header = header .. ' ' .. head[7] .. (proof and ' ' .. proof or '')
end
-- The script numbers the deltas, because the server's own numbers would begin at 0, which is the id of the entry itself.
local at, k = match(last, '^(%d+)%-(%d+)$')
k = at == position and tonumber(k) or 0
-- A server that took over may lack the last deltas that followers have seen. New ids must be higher than their ids.
local tag = ''
if is_another then
  tag = ' ' .. run
  if written_under ~= run then k = k + AHEAD end
end
for i = 11, #ARGV do
  k = k + 1
  call('XADD', KEYS[2], position .. '-' .. k, 'h', header, 'm', ARGV[i])
end
last = position .. '-' .. k
call('HSET', KEYS[1], 'live', last .. ' ' .. after .. tag, 'live_by', producer .. ' ' .. ARGV[3] .. others)
call('PEXPIRE', KEYS[2], ARGV[6])
call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[9], '*', 's', ARGV[8])
call('PEXPIRE', KEYS[3], ARGV[6])
return 'ok ' .. last .. ' ' .. bytes .. ' ' .. after
