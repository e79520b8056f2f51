-- Redrive dead letters: the work of each letter is due at once, and its count of attempts starts again at 0.
--
-- KEYS  1 to 6 see work.lua · 7 dead letters stream · then for each letter the head hash of its session
-- ARGV  1 to 4 see work.lua; the consumer is "" · 5 bytes to keep of the reason · then for each letter its id · the
--       letter's session
--
-- Returns { number of redriven letters, then the ids of letters whose session belongs to another agent; they are left }.
-- A letter that no longer exists is skipped, so a repeat changes nothing. A
-- letter of an erased session is deleted and not counted. Several letters of a session become one work. The session's
-- log and cursors do not change, but no trim removes the letter's entries until the work is done.

local count, left = 0, {}
call('ZCARD', KEYS[6])
call('XLEN', KEYS[3])
for i = 6, #ARGV, 2 do
  local entry = call('XRANGE', KEYS[7], ARGV[i], ARGV[i])[1]
  if entry then
    local fields, session = {}, ARGV[i + 1]
    for f = 1, #entry[2], 2 do fields[entry[2][f]] = entry[2][f + 1] end
    local head = KEYS[8 + (i - 6) / 2]
    local own, score = redis.pcall('HGET', head, 'agent'), order_of(call('ZSCORE', KEYS[1], session))
    if type(own) == 'table' then own, score = nil, nil end -- a foreign client has replaced the head
    if not stored(fields.z) then score = nil end
    if own and own ~= agent then
      left[#left + 1] = ARGV[i]
    elseif score and fields.s == session then
      local work = read(session)
      if not work or work.flags == 'd' then
        write(session, {
          holder = '', order = score, position = fields.z, attempt = 0, delay = 0, flags = 'r',
          error = string.sub(fields.r or '', 1, tonumber(ARGV[5])),
        })
        call('ZADD', KEYS[6], text_of(now), session)
        hint(session, fields.z)
      end
      local before = math.max(tonumber(fields.z) - 1, 0)
      if (stored(call('HGET', head, 'g:' .. group)) or 0) > before then call('HSET', head, 'g:' .. group, before) end
      count = count + 1
    end
    if left[#left] ~= ARGV[i] then call('XDEL', KEYS[7], ARGV[i]) end
  end
end
return { count, unpack(left) }
