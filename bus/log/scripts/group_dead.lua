-- Set work aside as a dead letter, with the reason: nobody gets it again, unless it is sent on its way again.
--
-- KEYS  1 to 6 see scripts/work.lua · 7 head hash · 8 dead letters stream
-- ARGV  1 to 4 see there · 5 session · 6 order number that it was given for · 7 position up to which the consumer has looked
--       8 attempts · 9 reason · 10 bytes · 11 how many bytes there were · 12 the most letters to keep
--
-- Gives the id of the letter; "" if the work is not this consumer's any more, so that a repeat adds nothing, or the session
-- was erased, of which nothing is kept. Letters that made room are counted in the groups hash.
--
-- A letter: s session, z position, n attempts, r reason, t milliseconds, w consumer, l bytes there were, b bytes.

local session = ARGV[5]
local work = read(session)
call('HGET', KEYS[7], 'state') -- this and the next end it here where a key is not of its type
call('XLEN', KEYS[8])
call('ZCARD', KEYS[6])
if not work or work.holder ~= consumer then return '' end
local id = ''
if call('ZSCORE', KEYS[1], session) then
  id = call('XADD', KEYS[8], '*', 's', session, 'z', work.position, 'n', ARGV[8], 'r', ARGV[9], 't', text_of(now),
    'w', consumer, 'l', ARGV[11], 'b', ARGV[10])
  local dropped = call('XTRIM', KEYS[8], 'MAXLEN', '=', ARGV[12])
  if dropped > 0 then call('HINCRBY', KEYS[4], group .. ':dropped', dropped) end
end
settle(session, KEYS[7], tonumber(ARGV[6]), tonumber(ARGV[7]))
return id
