-- Acknowledge work: nothing is left to do in these sessions, up to the positions that the consumer has read.
--
-- KEYS  1 to 6 see work.lua · then the head hash of each session
-- ARGV  1 to 4 see work.lua · then for each session
--       its id · order number of the assigned work · position up to which the consumer has read
--
-- Returns how many of the sessions were assigned to this consumer. Work that another consumer has claimed is not changed.

local count = 0
for i = 5, #ARGV, 3 do
  local work = read(ARGV[i])
  if work and work.holder == consumer then
    settle(ARGV[i], KEYS[7 + (i - 5) / 3], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
    count = count + 1
  end
end
return count
