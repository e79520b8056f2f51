-- Send dead letters on their way again: their work is due at once, as if it had never been tried.
--
-- KEYS  1 to 6 see scripts/work.lua · 7 dead letters stream · then for each letter the head hash of its session
-- ARGV  1 to 4 see there, nobody is the consumer · 5 how many bytes of its reason to keep · then for each letter
--       its id · its session
--
-- Gives how many were. A letter that is gone, also by an earlier run of this, is left out, and so is one whose session was
-- erased: that one is removed. Letters of one session become one work. The session's log is not touched, and no cursor is
-- moved; what the letter asks for is held from a trim again.

local count = 0
call('ZCARD', KEYS[6])
call('XLEN', KEYS[3])
for i = 6, #ARGV, 2 do
  local entry = call('XRANGE', KEYS[7], ARGV[i], ARGV[i])[1]
  if entry then
    local fields, session = {}, ARGV[i + 1]
    for f = 1, #entry[2], 2 do fields[entry[2][f]] = entry[2][f + 1] end
    local score = call('ZSCORE', KEYS[1], session)
    if score and fields.s == session then
      local work = read(session)
      if not work or work.flags == 'd' then
        write(session, {
          holder = '', order = tonumber(score), position = fields.z, attempt = 0, delay = 0, flags = 'r',
          error = string.sub(fields.r, 1, tonumber(ARGV[5])),
        })
        call('ZADD', KEYS[6], text_of(now), session)
        hint(session, fields.z)
      end
      local head, before = KEYS[8 + (i - 6) / 2], math.max(tonumber(fields.z) - 1, 0)
      if tonumber(call('HGET', head, 'g:' .. group) or 0) > before then call('HSET', head, 'g:' .. group, before) end
      count = count + 1
    end
    call('XDEL', KEYS[7], ARGV[i])
  end
end
return count
