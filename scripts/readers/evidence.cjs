// Reads a DuckDB file with Evidence's own connector, as docs/bi/evidence.md sets it up: the file is
// in the folder of the source.
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { getRunner } = require('@evidence-dev/duckdb');

(async () => {
	const source = fs.mkdtempSync(path.join(os.tmpdir(), 'evidence-'));
	fs.symlinkSync(process.argv[2], path.join(source, 'analytics.duckdb'));
	const run = await getRunner({ filename: 'analytics.duckdb' }, source);
	const sql = 'SELECT week, responses, nps FROM nps_by_week ORDER BY week';
	const answer = await run(sql, path.join(source, 'nps.sql'));
	const rows = [];
	for await (const batch of answer.rows()) rows.push(...batch);
	assert.ok(rows.length > 0 && rows.length === answer.expectedRowCount);
	assert.deepStrictEqual(answer.columnTypes.map((column) => column.evidenceType), ['date', 'number', 'number']);
	fs.rmSync(source, { recursive: true });
	console.log(`evidence: ${rows.length} weeks of NPS`);
})().catch((error) => {
	console.error(error);
	process.exit(1);
});
