-- One row per exploration group: its rewards and what credit made of them. Mixed: not all rewards are equal, so that it can teach.
CREATE VIEW lines.groups AS
SELECT run, branch, iteration, group_id, any_value(task) AS task, count(*) AS members,
       count(*) FILTER (kind = 'base') AS bases, count(*) FILTER (kind = 'distilled') AS distilled,
       min(reward) AS reward_min, avg(reward) AS reward_mean, max(reward) AS reward_max, any_value(group_std) AS reward_std,
       min(reward) < max(reward) AS mixed,
       sum(greatest(advantage, 0)) AS positive_mass, -sum(least(advantage, 0)) AS negative_mass
FROM lines.credit
GROUP BY run, branch, iteration, group_id;
