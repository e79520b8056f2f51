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
--
-- No lease is believed to last longer than it was taken for, nor a rest: where the end lies further ahead, the clock has gone
-- back since, and it ends so long after it is first seen so. lease_ms and rest_ms are these lengths.

local call = redis.call
local step, owner, ms, flag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers, heads = {}, {}
local run
local function text_of(number) return string.format('%.0f', number) end
-- All reads come first: a key that is not of its type ends it before the first write.
for i = 4, #KEYS do
  heads[i] = call('HMGET', KEYS[i], 'owner', 'epoch', 'lease_until', 'state', 'wanted', 'rests_until', 'position', 'lease_ms',
    'rest_ms')
end
if step == 'release' then
  call('ZCARD', KEYS[1])
  call('XLEN', KEYS[3])
  call('HLEN', KEYS[2])
  run = string.match(call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
end

-- The end of something that lasts `length` at most.
local function believed(key, field, end_, length)
  if end_ - now <= length then return end_ end
  call('HSET', key, field, text_of(now + length))
  return now + length
end

for i = 4, #KEYS do
  local head, session, epoch = heads[i], ARGV[2 * i - 1], ARGV[2 * i]
  local held_by, held, until_ = head[1] or '', tonumber(head[2] or 0), tonumber(head[3] or 0)
  local given, left = 0, 0
  if head[4] == 'erased' then
    given = -1
  elseif step == 'take' then
    local rests = tonumber(head[6] or 0)
    if rests > now then rests = believed(KEYS[i], 'rests_until', rests, tonumber(head[9] or 0)) end
    if held_by ~= '' and held_by ~= owner and until_ > now then
      until_ = believed(KEYS[i], 'lease_until', until_, tonumber(head[8] or 0))
    end
    if held_by ~= '' and held_by ~= owner and until_ > now then
      left = until_ - now
      if not head[5] then call('HSET', KEYS[i], 'wanted', 1) end
    elseif rests > now and not flag then
      left = now - rests
    else
      given = held + 1
      call('HSET', KEYS[i], 'owner', owner, 'epoch', given, 'lease_until', text_of(now + ms), 'lease_ms', text_of(ms))
      if head[5] or head[6] then call('HDEL', KEYS[i], 'wanted', 'rests_until', 'rest_ms') end -- who has it sees what they came for
    end
  elseif held_by == owner and held == tonumber(epoch) then
    given = held
    if step == 'renew' then
      call('HSET', KEYS[i], 'lease_until', text_of(now + ms), 'lease_ms', text_of(ms))
    else
      if (head[5] or flag) and head[7] then -- what holds no entry has no work
        local woken = string.match(call('HGET', KEYS[2], session) or '', '^%d+')
        wake(KEYS[1], KEYS[2], KEYS[3], run, ARGV[5], ARGV[6], session, woken or head[7])
      end
      if head[5] then call('HDEL', KEYS[i], 'wanted') end
      call('HSET', KEYS[i], 'owner', '', 'lease_until', 0)
      if ms > 0 then call('HSET', KEYS[i], 'rests_until', text_of(now + ms), 'rest_ms', text_of(ms)) end
    end
  end
  answers[#answers + 1] = given
  answers[#answers + 1] = left
end
return answers
