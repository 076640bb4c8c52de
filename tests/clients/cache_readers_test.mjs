// What others read in a cache that `tyto pull` has written: Hugging Face's own scan of it, and their reader of GGUF.
// Usage: cache_readers_test.mjs CACHE NODE_MODULES
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

const [cache, modules] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${modules}/@huggingface/${name}/dist/index.mjs`));
const { scanCacheDir } = await load("hub");
const { gguf } = await load("gguf");

test("the cache is found to be in order, with the model in it", async () => {
  const { repos, warnings } = await scanCacheDir(cache);
  assert.deepEqual(warnings, []);
  assert.deepEqual(repos.map(({ id }) => id), [{ name: "org/model", type: "model" }]);
  const [revision] = repos[0].revisions;
  assert.deepEqual(revision.refs, ["main"]);
  const [file] = revision.files;
  assert.ok(file.path.endsWith("tiny-Q4_K_M.gguf"), file.path);
  assert.equal(repos[0].size, statSync(file.path).size);

  const { metadata, tensorInfos } = await gguf(file.path, { allowLocalFile: true });
  assert.equal(metadata["general.architecture"], "llama");
  assert.equal(BigInt(tensorInfos.length), metadata.tensor_count);
});
