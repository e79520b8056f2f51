// Upload a file of random bytes in one piece, send it with a text, and tell what happened.
const [folder, text] = process.argv.slice(2);
const { connect } = await import(`${folder}/dist/index.js`);
const { upload } = await import(`${folder}/dist/upload.js`);
const { url, token, session, hex } = JSON.parse(text);
const lanebus = connect({ url, token });
const file = new File([Uint8Array.from(Buffer.from(hex, "hex"))], "picture.png", { type: "image/png" });
const progress = [];
const block = await upload(lanebus, session, file, { retry: 20, onProgress: (sent) => progress.push(sent) });
const body = { content: [{ type: "text", text: "look" }, block], key: "once" };
const { positions } = await lanebus.request("POST", "/api/sessions/{session}/messages", { path: { session }, body });
console.log(JSON.stringify({ block, progress, positions: positions.length }));
