/**
 * Tables as CSV files (RFC 4180) that a spreadsheet can open without running anything.
 */

/** @typedef {string | number | null | undefined} Cell */

// A spreadsheet takes a cell that begins with one of these signs for a formula, some of them after blanks, quotes and
// in full width. Where its separator is another than ours, a cell may begin within a text.
const FORMULA = /(?:^|(?<=[;,\t\r\n]))(?=(?:[^\S\t\r\n]|")*[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])/g;

/** @param {Cell} value */
function cell(value) {
  if (typeof value !== "string") return String(value ?? "");
  return `"${value.replaceAll(FORMULA, "'").replaceAll('"', '""')}"`;
}

/** @param {string[]} head @param {Cell[][]} rows */
export const csvText = (head, rows) => [head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");

/** A moment in a cell. @param {number | null} moment */
export const csvTime = (moment) => (moment === null ? "" : new Date(moment).toISOString());

/** Save a text as a file. @param {string} name @param {string} text @param {string} type */
export function saveFile(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** The mark at its start tells spreadsheets that it is UTF-8. @param {string} name @param {string} text */
export const saveCsv = (name, text) => saveFile(name, `\ufeff${text}`, "text/csv");
