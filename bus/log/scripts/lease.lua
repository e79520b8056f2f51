-- Take, renew or release the leases of sessions of one bucket.
--
-- KEYS  1 woken hash · 2 wake-ups stream · then the head hash of each session · then, to release, the order of each
--       session's agent, a sorted set
-- ARGV  1 take, renew or release · 2 owner · 3 milliseconds: duration of the lease (take, renew), or time until the
--       session's next attempt (release) · 4 "1": take a session even if it rests (take), or wake other workers (release)
--       5 and 6 MAXLEN arguments of wake-ups · then for each session
--       its id · epoch (renew, release) · the agent that it is believed to belong to, or "" if the agent is unknown
--
-- Returns three words for each session. The third is the session's agent or "". The first two are:
--   epoch, 0          the owner has the lease
--   0, milliseconds   another owner has the lease for this time. A negative number is the time that the session rests
--   0, 0              the lease to renew or release is lost
--   -1, 0             the session was erased
--   -3, 0             the head is damaged, and nothing was changed. The third word is the damaged key and field
--   -2, 0             the session belongs to another agent than the believed one; nothing was changed
--
-- The clock only decides when a lease may be taken over. The epoch makes leases safe: it only grows, and every append of a
-- worker is checked against the epoch. If an owner finds that another owner has the lease, it sets `wanted` in the head.
-- The release then wakes the workers, so that no owner has to poll.

local call = redis.call
local step, owner, ms, flag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers, heads = {}, {}
local run
-- All reads come first: a shared key of a wrong type ends the script before its first write.
local count = (#ARGV - 6) / 3
for i = 1, count do
  heads[i] = lease_of(KEYS[2 + i])
end
if step == 'release' then
  call('HLEN', KEYS[1])
  call('XLEN', KEYS[2])
  for i = 1, count do call('ZCARD', KEYS[2 + count + i]) end
  run = string.match(call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
end

for i = 1, count do
  local head, key, session, epoch, believed = heads[i], KEYS[2 + i], ARGV[3 * i + 4], ARGV[3 * i + 5], ARGV[3 * i + 6]
  local agent = head[10] or ''
  local held_by, held = head[1] or '', stored(head[2]) or 0
  local given, left = 0, 0
  if head.damage and head[4] ~= 'erased' then
    given, agent = -3, head.damage
  elseif head[4] == 'erased' then
    given = -1
  elseif step == 'take' and believed ~= '' and believed ~= agent then
    given = -2
  elseif step == 'take' then
    given, left = take_lease(key, head, owner, ms, now, flag)
  elseif held_by == owner and held == tonumber(epoch) then
    given = held
    local wakes = (head[5] or flag) and head[7] and head[10] -- a session without entries has no work
    if step == 'renew' then
      call('HSET', key, 'lease_until', string.format('%.0f', now + ms), 'lease_ms', string.format('%.0f', ms))
    elseif wakes and believed ~= agent then
      given = -2
    else
      if wakes then
        local woken = string.match(call('HGET', KEYS[1], session) or '', '^%d+')
        wake(KEYS[2 + count + i], KEYS[1], KEYS[2], run, ARGV[5], ARGV[6], session, woken or head[7], agent, '0')
      end
      if head[5] then call('HDEL', key, 'wanted') end
      call('HSET', key, 'owner', '', 'lease_until', 0)
      if ms > 0 then call('HSET', key, 'rests_until', string.format('%.0f', now + ms), 'rest_ms', string.format('%.0f', ms)) end
    end
  end
  answers[#answers + 1] = given
  answers[#answers + 1] = left
  answers[#answers + 1] = agent
end
return answers
