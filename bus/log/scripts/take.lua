-- Shared by the scripts that take leases: it stands before their own text.
--
-- No lease is believed to last longer than it was taken for, nor a rest: where the end lies further ahead, the clock has gone
-- back since, and it ends so long after it is first seen so. lease_ms and rest_ms are these lengths.

local function believed(key, field, end_, length, now)
  if end_ - now <= length then return end_ end
  redis.call('HSET', key, field, string.format('%.0f', now + length))
  return now + length
end

local function lease_of(head)
  return redis.call('HMGET', head, 'owner', 'epoch', 'lease_until', 'state', 'wanted', 'rests_until', 'position', 'lease_ms',
    'rest_ms')
end

-- Gives the epoch and 0; or 0 and how many milliseconds another owner has it for or, below zero, it rests for. `lease` is what
-- lease_of gave; a session that rests is only taken with `flag`.
local function take_lease(head, lease, owner, ms, now, flag)
  local held_by, until_, rests = lease[1] or '', tonumber(lease[3] or 0), tonumber(lease[6] or 0)
  if rests > now then rests = believed(head, 'rests_until', rests, tonumber(lease[9] or 0), now) end
  if held_by ~= '' and held_by ~= owner and until_ > now then
    until_ = believed(head, 'lease_until', until_, tonumber(lease[8] or 0), now)
    if not lease[5] then redis.call('HSET', head, 'wanted', 1) end
    return 0, until_ - now
  elseif rests > now and not flag then
    return 0, now - rests
  end
  local epoch = tonumber(lease[2] or 0) + 1
  local length, end_ = string.format('%.0f', ms), string.format('%.0f', now + ms)
  redis.call('HSET', head, 'owner', owner, 'epoch', epoch, 'lease_until', end_, 'lease_ms', length)
  -- Whoever has it sees what others came for.
  if lease[5] or lease[6] then redis.call('HDEL', head, 'wanted', 'rests_until', 'rest_ms') end
  return epoch, 0
end

