-- The current attributes of people.
--
-- One row: one attribute of one person; key (external_user_id, name).
-- Left out: earlier values, and people whom the service no longer knows. Times are UTC.
--
-- Columns:
--   external_user_id: Your own id of the person.
--   name: The attribute.
--   value_text: The value as text; JSON for lists and objects.
--   value_number: The value if it is a number.
--   value_bool: The value if it is true or false.
--   known_since: When a scan first saw this value.
SELECT
    attribute.external_user_id, attribute.name, attribute.value_text, attribute.value_number, attribute.value_bool,
    attribute.valid_from AS known_since
FROM user_attributes AS attribute
WHERE attribute.is_current
