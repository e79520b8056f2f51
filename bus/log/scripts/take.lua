-- Shared code that is put before the text of each script that takes leases.
--
-- A lease lasts for lease_ms, and a rest for rest_ms. If an end is further ahead than this duration, the clock was set
-- back, and the end is moved to one duration from now.

local function bounded_end(key, field, end_, length, now)
  if end_ - now <= length then return end_ end
  redis.call('HSET', key, field, string.format('%.0f', now + length))
  return now + length
end

-- Return the fields of a lease. If they cannot be read, or the epoch is damaged, `damage` names the field.
local function lease_of(head)
  local lease = redis.pcall('HMGET', head, 'owner', 'epoch', 'lease_until', 'state', 'wanted', 'rests_until', 'position', 'lease_ms',
    'rest_ms', 'agent')
  if lease.err then return { damage = 'head' } end
  if lease[2] and not stored(lease[2]) then lease.damage = 'head, epoch' end
  if lease[10] and not is_agent(lease[10]) then lease.damage = 'head, agent' end
  return lease
end

-- Take a lease and return its epoch and 0. If the lease was not taken, return 0 and the milliseconds for which another
-- owner has it. If the session rests, these milliseconds are negative. `lease` is a result of lease_of. The lease of a
-- session that rests is taken only with `flag`.
local function take_lease(head, lease, owner, ms, now, flag)
  -- A damaged time counts as over: the epoch makes leases safe.
  local held_by, until_, rests = lease[1] or '', stored(lease[3]) or 0, stored(lease[6]) or 0
  if rests > now then rests = bounded_end(head, 'rests_until', rests, stored(lease[9]) or 0, now) end
  if held_by ~= '' and held_by ~= owner and until_ > now then
    until_ = bounded_end(head, 'lease_until', until_, stored(lease[8]) or 0, now)
    if not lease[5] then redis.call('HSET', head, 'wanted', 1) end
    return 0, until_ - now
  elseif rests > now and not flag then
    return 0, now - rests
  end
  local epoch = (stored(lease[2]) or 0) + 1
  local length, end_ = string.format('%.0f', ms), string.format('%.0f', now + ms)
  redis.call('HSET', head, 'owner', owner, 'epoch', epoch, 'lease_until', end_, 'lease_ms', length)
  -- The new owner reads all new entries, so other workers need not be woken for them.
  if lease[5] or lease[6] then redis.call('HDEL', head, 'wanted', 'rests_until', 'rest_ms') end
  return epoch, 0
end

