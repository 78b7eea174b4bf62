-- Stored plans and work use the names of the API: strategy, reason, checkpoints.
UPDATE operations SET
    plan = json_remove(
        json_set(plan, '$.strategy', json_extract(plan, '$.way'), '$.reason', json_extract(plan, '$.why')), '$.way', '$.why')
WHERE json_type(plan, '$.way') IS NOT NULL;
UPDATE operations SET work = json_remove(json_set(work, '$.checkpoints', json(work -> '$.marks')), '$.marks')
WHERE json_type(work, '$.marks') IS NOT NULL;
