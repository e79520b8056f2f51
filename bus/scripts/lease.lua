-- Take, renew or give back the lease of a session. Its epoch only grows; every append of a worker carries it.
--
-- KEYS  1 head hash
-- ARGV  1 take, renew or release · 2 owner · 3 epoch (renew, release) · 4 milliseconds to hold
--
-- Gives the epoch held, or 0, or -1 if the session was erased. Time only tells when a lease may be taken over; the epoch is what keeps it safe.

local head = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'lease_until', 'state')
if head[4] == 'erased' then return -1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local owner, epoch, until_ = head[1], tonumber(head[2] or 0), tonumber(head[3] or 0)

if ARGV[1] == 'take' then
  if owner and owner ~= '' and owner ~= ARGV[2] and until_ > now then return 0 end
  epoch = epoch + 1
elseif owner ~= ARGV[2] or epoch ~= tonumber(ARGV[3]) then
  return 0
end
if ARGV[1] == 'release' then
  redis.call('HSET', KEYS[1], 'owner', '', 'lease_until', 0)
else
  redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'epoch', epoch, 'lease_until', string.format('%d', now + tonumber(ARGV[4])))
end
return epoch
