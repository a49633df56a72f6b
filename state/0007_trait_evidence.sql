-- How a trait was measured, in words. It holds counts and moments, and names no person. Traits of before have none.

ALTER TABLE traits ADD COLUMN evidence TEXT;
