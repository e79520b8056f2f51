-- Take, renew or give back the leases of sessions of one bucket. An epoch only grows; every append of a worker carries it.
--
-- KEYS  1 order · 2 woken hash · 3 wake-ups stream · then the head hash of each session
-- ARGV  1 take, renew or release · 2 owner · 3 milliseconds: to hold it (take, renew), or to let the session rest (release)
--       4 "1": take a session that rests, too; release it and wake other workers · 5 how wake-ups are trimmed · 6 to which
--       length · then for each
--       session id · epoch (renew, release)
--
-- Gives two numbers for each: the epoch held and 0; or 0 and how many milliseconds another owner has it for, or, below zero,
-- it rests for, or 0 where a lease to renew or release is lost; or -1 and 0 where the session was erased.
--
-- Time only tells when a lease may be taken over; the epoch is what keeps it safe. Whoever finds a session held notes that in
-- the head, and its release then wakes the session's workers: so nobody has to ask again and again.

local call = redis.call
local step, owner, ms, flag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers, heads = {}, {}
local run
-- All reads come first: a key that is not of its type ends it before the first write.
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
      if (head[5] or flag) and head[7] then -- what holds no entry has no work
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
