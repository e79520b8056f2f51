-- Take, renew or release the leases of sessions of one bucket.
--
-- KEYS  1 order, a sorted set · 2 woken hash · 3 wake-ups stream · then the head hash of each session
-- ARGV  1 take, renew or release · 2 owner · 3 milliseconds: duration of the lease (take, renew), or time until the
--       session's next attempt (release) · 4 "1": take a session even if it rests (take), or wake other workers (release)
--       5 and 6 MAXLEN arguments of wake-ups · then for each session
--       its id · epoch (renew, release)
--
-- Returns two numbers for each session:
--   epoch, 0          the owner has the lease
--   0, milliseconds   another owner has the lease for this time. A negative number is the time that the session rests
--   0, 0              the lease to renew or release is lost
--   -1, 0             the session was erased
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
-- All reads come first: a key of a wrong type ends the script before its first write.
for i = 4, #KEYS do
  heads[i] = lease_of(KEYS[i])
end
if step == 'release' then
  call('ZCARD', KEYS[1])
  call('XLEN', KEYS[3])
  call('HLEN', KEYS[2])
  run = string.match(call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
end

for i = 4, #KEYS do
  local head, session, epoch = heads[i], ARGV[2 * i - 1], ARGV[2 * i]
  local held_by, held = head[1] or '', tonumber(head[2] or 0)
  local given, left = 0, 0
  if head[4] == 'erased' then
    given = -1
  elseif step == 'take' then
    given, left = take_lease(KEYS[i], head, owner, ms, now, flag)
  elseif held_by == owner and held == tonumber(epoch) then
    given = held
    if step == 'renew' then
      call('HSET', KEYS[i], 'lease_until', string.format('%.0f', now + ms), 'lease_ms', string.format('%.0f', ms))
    else
      if (head[5] or flag) and head[7] then -- a session without entries has no work
        local woken = string.match(call('HGET', KEYS[2], session) or '', '^%d+')
        wake(KEYS[1], KEYS[2], KEYS[3], run, ARGV[5], ARGV[6], session, woken or head[7], '0')
      end
      if head[5] then call('HDEL', KEYS[i], 'wanted') end
      call('HSET', KEYS[i], 'owner', '', 'lease_until', 0)
      if ms > 0 then call('HSET', KEYS[i], 'rests_until', string.format('%.0f', now + ms), 'rest_ms', string.format('%.0f', ms)) end
    end
  end
  answers[#answers + 1] = given
  answers[#answers + 1] = left
end
return answers
