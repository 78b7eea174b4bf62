-- Stored plans and work use the names of the API: strategy, reason, checkpoints.
UPDATE operations SET plan = (
    plan::jsonb - 'way' - 'why'
    || jsonb_build_object('strategy', plan::jsonb -> 'way', 'reason', plan::jsonb -> 'why'))::text
WHERE plan::jsonb ? 'way';
UPDATE operations SET work = (work::jsonb - 'marks' || jsonb_build_object('checkpoints', work::jsonb -> 'marks'))::text
WHERE work::jsonb ? 'marks';
