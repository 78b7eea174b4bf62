/** The form of a retention rule. Errors are shown at their fields. */

import { html } from "../html.js";
import { ApiError, graphql } from "../api.js";
import { ask, field, panel, warning } from "../components.js";
import { keepDraft } from "../drafts.js";
import { actor, time } from "../format.js";
import { send } from "./forms.js";
import { EVERY, RULE, inWords, seriesName, toIso } from "./retention_display.js";

/** @typedef {import("./retention_display.js").Rule} Rule */

const ONE = `query Rule($series: String!) { retentionRule(series: $series) { ${RULE} } }`;
const SET = `mutation Set($input: RetentionRuleInput!) { setRetentionRule(input: $input) { series } }`;
const DELETE = `mutation Delete($series: String!) { deleteRetentionRule(series: $series) }`;
const NAMES = [
  "series",
  "keep",
  "removeAfter",
  "maxSize",
  "maxRows",
  "keepLast",
  "schedule",
  "timeZone",
  "window",
  "atMost",
  "hold",
];
const FIELDS = Object.fromEntries([...NAMES, "mode"].map((name) => [name, `rule-${name}`]));

/**
 * @param {{series: string | null, me: import("../shell.js").Me, close: string, signal: AbortSignal,
 *   done: (said: unknown, series: string | null) => Promise<void>}} what without a series: a new rule
 */
export async function ruleForm({ series, close, signal, done }) {
  const found = series === null ? null : await ruleOf(series, signal);
  // The rule of every series is only a default here: saving makes one of the series' own.
  const rule = found && found.series.toLowerCase() === series?.toLowerCase() ? found : null;
  const from = rule ?? found;

  /** @param {Event} event */
  const save = (event) =>
    send(
      event,
      async (form) => {
        const given = new FormData(form);
        /** @type {Record<string, string | number | null>} */
        const input = Object.fromEntries(NAMES.map((name) => [name, String(given.get(name) ?? "").trim() || null]));
        for (const name of ["keep", "removeAfter"]) input[name] = input[name] && toIso(String(input[name]));
        for (const name of ["maxRows", "keepLast"]) {
          const text = input[name];
          if (text === null) continue;
          if (!/^\d+$/.test(String(text)))
            throw new ApiError(`${name} must be a whole number.`, { details: { field: name } });
          input[name] = Number(text);
        }
        input.series ??= series;
        input.mode = String(given.get("mode"));
        input.keep ??= "";
        if (input.mode === "ENFORCE" && rule?.mode !== "ENFORCE" && !(await enforce(input))) return;
        await graphql(SET, { input });
        saved();
        await done(
          html`${rule ? "Changed" : "Created"} the rule of <strong>${seriesName(String(input.series))}</strong>.`,
          String(input.series),
        );
      },
      FIELDS,
    );

  async function remove() {
    if (!rule) return;
    const sure = await ask({
      title: `Delete the rule of ${seriesName(rule.series)}?`,
      danger: true,
      action: "Delete rule",
      content: html`<p>${
        rule.series === EVERY
          ? "Series without a rule of their own keep every row."
          : "The rule of every series applies to it from now on, if there is one; otherwise every row stays."
      }
          Its runs stay in the history.</p>
        ${rule.holdReason ? warning(html`Its hold ends too: ${rule.holdReason}`) : null}
        ${
          rule.set
            ? warning(
                html`The policy set <strong>${rule.set}</strong> declares it: it returns when the file is applied
                  again.`,
              )
            : null
        }`,
      act: () => graphql(DELETE, { series: rule.series }),
    });
    if (sure) await done(html`Deleted the rule of <strong>${seriesName(rule.series)}</strong>.`, rule.series);
  }

  /**
   * @param {string} name
   * @param {string} label @param {string} hint @param {string} [value]
   * @param {{required?: boolean, placeholder?: string}} [how]
   */
  const text = (name, label, hint, value = "", { required = false, placeholder } = {}) =>
    field({
      id: `rule-${name}`,
      label,
      hint,
      optional: !required,
      control: html`<input id="rule-${name}" name="${name}" autocomplete="off" spellcheck="false" maxlength="500"
        ?required=${required}
      placeholder="${placeholder ?? null}" aria-describedby="rule-${name}-hint" .value=${value}>`,
    });

  const title =
    series === null ? "New rule" : rule ? `Rule of ${seriesName(rule.series)}` : `New rule of ${seriesName(series)}`;
  const node = panel({
    title,
    close,
    content: html`${
      rule?.set
        ? warning(html`The policy set <strong>${rule.set}</strong> declares it: the next time its file is applied, it
        overwrites your changes. Change the file too.`)
        : null
    }
      ${
        series && !rule && found
          ? html`<p class="quiet">Now the rule of every series applies to it. These are its values.</p>`
          : null
      }
      <form id="rule-form" @submit=${save}>
      ${
        series === null
          ? text("series", "Series", "entity.aspect, or * for every series without a rule of its own.", "", {
              required: true,
              placeholder: "dataset.operation",
            })
          : null
      }
      ${text("keep", "Keep", "Nothing younger is removed. Such as 30 days, 12h or P30D.", inWords(from?.keep ?? null), {
        required: true,
        placeholder: "90 days",
      })}
      ${text(
        "removeAfter",
        "Remove after",
        "Older rows are removed. Empty: as keep, unless a size or a number of rows is given.",
        inWords(from?.removeAfter ?? null),
      )}
      ${text("maxSize", "Largest size", "The oldest rows beyond it are removed, such as 20GB.", from?.maxSize ?? "")}
      ${text("maxRows", "Most rows", "The oldest rows beyond it are removed.", String(from?.maxRows ?? ""))}
      ${text("keepLast", "Always keep the newest of each urn", "How many, 1 to 100.", String(from?.keepLast ?? ""))}
      ${text("schedule", "Schedule", "Five fields of cron. Empty: 0 1 * * *, every night at one.", from?.schedule)}
      ${text("timeZone", "Time zone", "Of schedule and window, such as Europe/Berlin. Empty: UTC.", from?.timeZone)}
      ${text("window", "Window", "The part of the day in which runs work, such as 22:00-06:00.", from?.window ?? "")}
      ${text(
        "atMost",
        "Share without approval",
        "A run that would remove more waits for a person. Empty: 50%.",
        from?.atMost,
      )}
      <fieldset data-field="rule-mode" id="rule-mode" tabindex="-1"><legend>Mode</legend>
        <label class="choice"><input type="radio" name="mode" value="REPORT"
          .checked=${from?.mode !== "ENFORCE"}><span>Report only<small>Plan and record each run, remove
            nothing.</small></span></label>
        <label class="choice"><input type="radio" name="mode" value="ENFORCE"
          .checked=${from?.mode === "ENFORCE"}><span>Enforce<small>Each run removes rows. They cannot be brought
            back.</small></span></label>
        <div class="field-error"></div></fieldset>
      ${text("hold", "Hold", "While a reason is here, nothing of the series is removed.", from?.holdReason ?? "")}
      <div class="form-error"></div>
      <p class="actions"><button type="submit" class="primary">${rule ? "Save rule" : "Create rule"}</button>
        <a class="button" href="${close}">Cancel</a>
        ${rule ? html`<button type="button" class="danger" @click=${remove}>Delete rule…</button>` : null}</p></form>
      ${
        rule
          ? html`<p class="quiet small">Changed ${time(rule.changedAt)} by
            ${actor(rule.changedBy, rule.changedByName)}</p>`
          : null
      }`,
  });
  const saved = keepDraft(
    /** @type {HTMLFormElement} */ (node.querySelector("form")),
    `retention rule ${series ?? "new"}`,
  );
  return node;
}

/**
 * The rule of the series, or of every series; null if there is neither.
 * @param {string} series @param {AbortSignal} signal @returns {Promise<Rule | null>}
 */
export async function ruleOf(series, signal) {
  try {
    return (await graphql(ONE, { series }, { signal })).retentionRule;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** @param {Record<string, string | number | null>} input */
const enforce = (input) =>
  ask({
    title: `Remove rows of ${seriesName(String(input.series))} by this rule?`,
    danger: true,
    action: "Enforce the rule",
    content: html`<p>From the next run on, rows older than ${inWords(String(input.removeAfter ?? input.keep))} are
    removed, up to ${input.atMost ?? "50%"} of all rows without approval. They cannot be brought back.</p>`,
  });
