-- 7. Attempts = trained + led on to a trained one + dropped with a reason.
SELECT run, branch, iteration, stage AS id, unaccounted || ' of ' || attempts || ' attempts are neither trained nor dropped with a reason' AS what
FROM account WHERE unaccounted > 0;
