-- Take, renew or give back the leases of sessions of one bucket. An epoch only grows; every append of a worker carries it.
--
-- KEYS  1 index stream · then the head hash of each session
-- ARGV  1 take, renew or release · 2 owner · 3 milliseconds: to hold it (take, renew), or to let the session rest (release)
--       4 "1": take a session that rests, too; release it and ring for other workers · 5 index length · then for each
--       session id · epoch (renew, release)
--
-- Gives two numbers for each: the epoch held and 0; or 0 and how many milliseconds another owner has it for, or, below zero,
-- it rests for, or 0 where a lease to renew or release is lost; or -1 and 0 where the session was erased.
--
-- Time only tells when a lease may be taken over; the epoch is what keeps it safe. Whoever finds a session held notes that in
-- the head, and its release then rings: so nobody has to ask again and again.

local call = redis.call
local step, owner, ms, flag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers, heads = {}, {}
-- All reads come first: a key that is not of its type ends it before the first write.
for i = 2, #KEYS do
  heads[i] = call('HMGET', KEYS[i], 'owner', 'epoch', 'lease_until', 'state', 'wanted', 'rests_until', 'position')
end
if step == 'release' then call('XLEN', KEYS[1]) end

for i = 2, #KEYS do
  local head, session, epoch = heads[i], ARGV[2 + 2 * i], ARGV[3 + 2 * i]
  local held_by, held, until_ = head[1] or '', tonumber(head[2] or 0), tonumber(head[3] or 0)
  local given, left = 0, 0
  if head[4] == 'erased' then
    given = -1
  elseif step == 'take' then
    local rests = tonumber(head[6] or 0) - now
    if held_by ~= '' and held_by ~= owner and until_ > now then
      left = until_ - now
      call('HSET', KEYS[i], 'wanted', 1)
    elseif rests > 0 and not flag then
      left = -rests
    else
      given = held + 1
      call('HSET', KEYS[i], 'owner', owner, 'epoch', given, 'lease_until', string.format('%d', now + ms))
      if head[5] or head[6] then call('HDEL', KEYS[i], 'wanted', 'rests_until') end -- who has it sees what they came for
    end
  elseif held_by == owner and held == tonumber(epoch) then
    given = held
    if step == 'renew' then
      call('HSET', KEYS[i], 'lease_until', string.format('%d', now + ms))
    else
      if head[5] or flag then
        call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 's', session, 'z', head[7] or '0', 'w', '1')
        call('HDEL', KEYS[i], 'wanted')
      end
      call('HSET', KEYS[i], 'owner', '', 'lease_until', 0)
      if ms > 0 then call('HSET', KEYS[i], 'rests_until', string.format('%d', now + ms)) end
    end
  end
  answers[#answers + 1] = given
  answers[#answers + 1] = left
end
return answers
